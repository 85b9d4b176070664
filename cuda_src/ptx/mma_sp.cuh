// mma.sp::ordered_metadata: one 2:4 sparse tensor-core product of a warp, d += a @ b.
// PTX ISA, "Warp-level matrix instructions: mma.sp" (.m16n8k16 tf32, .m16n8k32, .m16n8k64).
//
// With g = lane / 4 and t = lane % 4, and K elements being 64 bytes:
//
//   a (16 x K/2, packed): exactly the a of the dense product with half the K (ptx/mma.cuh):
//                         a[0]: row g, bytes 4t..4t+3; a[1]: row g + 8; a[2], a[3]: 16 bytes on
//   b (K x 8):            b[i]: column g, bytes 16i + 4t .. 16i + 4t+3 of k, i = 0 .. 3
//   d (16 x 8):           as in the dense product
//
// Metadata: each 4 bits hold two positions, i | j << 2, of one group of four (tf32: one pair of a
// group of two, code 0b0100 or 0b1110); groups ascend from the low bits. `e` of one lane holds
//
//   16-bit, K = 32: lanes t = 2*S and 2*S + 1 (S the selector):
//                   low half row g, high half row g + 8, groups of k = 16 * (t % 2) .. + 15
//   tf32,   K = 16: the same with k = 8 * (t % 2) .. + 7
//   8-bit,  K = 64: all lanes (the selector must be 0): row g + 8 * (t % 2),
//                   k = 32 * (t / 2) .. + 31
//
// The other lanes' `e` is ignored. "ordered_metadata" promises i < j, which our format always has.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

#define SPARSEGPU_MMA_SP(NAME, SHAPE, TYPES, ACC, CONSTRAINT)                                      \
  template <int S>                                                                                 \
  __device__ __forceinline__ void NAME(ACC(&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], \
                                       unsigned e) {                                               \
    asm volatile("mma.sp::ordered_metadata.sync.aligned." SHAPE ".row.col." TYPES                  \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "                       \
                 "{%0, %1, %2, %3}, %12, %13;\n"                                                   \
                 : CONSTRAINT(d[0]), CONSTRAINT(d[1]), CONSTRAINT(d[2]), CONSTRAINT(d[3])          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]),    \
                   "r"(b[3]), "r"(e), "n"(S));                                                     \
  }

SPARSEGPU_MMA_SP(mma_sp_bf16_m16n8k32, "m16n8k32", "f32.bf16.bf16.f32", f32, "+f")
SPARSEGPU_MMA_SP(mma_sp_f16_m16n8k32, "m16n8k32", "f32.f16.f16.f32", f32, "+f")
SPARSEGPU_MMA_SP(mma_sp_tf32_m16n8k16, "m16n8k16", "f32.tf32.tf32.f32", f32, "+f")
SPARSEGPU_MMA_SP(mma_sp_s8_m16n8k64, "m16n8k64", "s32.s8.s8.s32", s32, "+r")
#if __CUDA_ARCH__ >= 890
SPARSEGPU_MMA_SP(mma_sp_e4m3_m16n8k64, "m16n8k64", "f32.e4m3.e4m3.f32", f32, "+f")
#endif
#undef SPARSEGPU_MMA_SP

// MmaSp<E>::k: k of the m16n8 product of E (f32 means tf32); MmaSp<E>::run<S>(d, a, b, e) runs it
// with selector S (8-bit types: S = 0).
template <typename E>
struct MmaSp;
template <>
struct MmaSp<bf16> {
  static constexpr int k = 32;
  template <int S>
  static __device__ __forceinline__ void run(f32 (&d)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[4], unsigned e) {
    mma_sp_bf16_m16n8k32<S>(d, a, b, e);
  }
};
template <>
struct MmaSp<f16> {
  static constexpr int k = 32;
  template <int S>
  static __device__ __forceinline__ void run(f32 (&d)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[4], unsigned e) {
    mma_sp_f16_m16n8k32<S>(d, a, b, e);
  }
};
template <>
struct MmaSp<f32> {
  static constexpr int k = 16;
  template <int S>
  static __device__ __forceinline__ void run(f32 (&d)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[4], unsigned e) {
    mma_sp_tf32_m16n8k16<S>(d, a, b, e);
  }
};
template <>
struct MmaSp<s8> {
  static constexpr int k = 64;
  template <int S>
  static __device__ __forceinline__ void run(s32 (&d)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[4], unsigned e) {
    static_assert(S == 0, "every lane feeds metadata to an 8-bit product");
    mma_sp_s8_m16n8k64<S>(d, a, b, e);
  }
};
#if __CUDA_ARCH__ >= 890
template <>
struct MmaSp<e4m3> {
  static constexpr int k = 64;
  template <int S>
  static __device__ __forceinline__ void run(f32 (&d)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[4], unsigned e) {
    static_assert(S == 0, "every lane feeds metadata to an 8-bit product");
    mma_sp_e4m3_m16n8k64<S>(d, a, b, e);
  }
};
#endif

}  // namespace sparsegpu
