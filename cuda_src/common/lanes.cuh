// Values of 1 and 2 bytes without branches: two 16-bit lanes of a word, and bytes by selector.
#pragma once

namespace sparsegpu {

typedef unsigned int u32;

// Byte n of the result is byte (selector >> 4 n & 7) of the eight bytes of high:low; where bit 3 of
// the selector's digit is set, eight copies of that byte's sign (PTX ISA, prmt).
__device__ __forceinline__ u32 permute(u32 low, u32 high, u32 selector) {
  u32 out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selector));
  return out;
}

// 1 in each lane that has a bit set.
__device__ __forceinline__ u32 any_bit(u32 lanes) {
  return __vminu2(lanes, 0x00010001u);
}

// The same 16 bits in both lanes.
constexpr u32 both_lanes(u32 bits) {
  return bits | bits << 16;
}

}  // namespace sparsegpu
