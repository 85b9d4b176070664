// mad.wide: a * b + c, where the product of two 32-bit numbers has 64 bits: an address in one step.
// PTX ISA, "Integer arithmetic instructions: mad".
#pragma once

namespace sparsegpu {

__device__ __forceinline__ unsigned long long mad_wide(unsigned a, unsigned b,
                                                       unsigned long long c) {
  unsigned long long d;
  asm("mad.wide.u32 %0, %1, %2, %3;\n" : "=l"(d) : "r"(a), "r"(b), "l"(c));
  return d;
}

}  // namespace sparsegpu
