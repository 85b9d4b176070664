// mma.sync with half as many terms as ptx/mma.cuh has: m16n8k8 of 16-bit operands, d += a @ b.
// PTX ISA, "Warp-level matrix instructions: mma". Fragments: a[0] and a[1], b[0] of ptx/mma.cuh.
#pragma once

#include "common/types.cuh"

template <typename E>
__device__ __forceinline__ void mma_half(f32 (&d)[4], const unsigned (&a)[2], unsigned b);
template <>
__device__ __forceinline__ void mma_half<bf16>(f32 (&d)[4], const unsigned (&a)[2], unsigned b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}
template <>
__device__ __forceinline__ void mma_half<f16>(f32 (&d)[4], const unsigned (&a)[2], unsigned b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}
