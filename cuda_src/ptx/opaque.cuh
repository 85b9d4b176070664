// A value that the compiler cannot trace to where it came from, at no cost: what follows from it is
// computed again instead of being kept in registers.
// PTX ISA, "Instruction operands": an empty asm with one operand that it may change.
#pragma once

namespace sparsegpu {

__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
__device__ __forceinline__ unsigned opaque(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}
__device__ __forceinline__ long long opaque(long long x) {
  asm volatile("" : "+l"(x));
  return x;
}
template <typename E>
__device__ __forceinline__ const E* opaque(const E* x) {
  asm volatile("" : "+l"(x));
  return x;
}

}  // namespace sparsegpu
