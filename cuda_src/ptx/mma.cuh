// mma.sync: one dense tensor-core product of a warp, d += a @ b.
// PTX ISA, "Warp-level matrix instructions: mma" (fragments for .m16n8k8, .m16n8k16, .m16n8k32
// and .m8n8k4).
//
// With g = lane / 4 and t = lane % 4, and K elements being 32 bytes, the fragments of all the
// m16n8 shapes are the same when counted in bytes of k:
//
//   a (16 x K, row-major rows):   a[0]: row g,     bytes 4t .. 4t+3 of k
//                                 a[1]: row g + 8, bytes 4t .. 4t+3
//                                 a[2]: row g,     bytes 4t + 16 .. 4t+19
//                                 a[3]: row g + 8, bytes 4t + 16 .. 4t+19
//   b (K x 8, column by column):  b[0]: column g,  bytes 4t .. 4t+3 of k
//                                 b[1]: column g,  bytes 4t + 16 .. 4t+19
//   d (16 x 8):                   d[0], d[1]: row g,     columns 2t, 2t + 1
//                                 d[2], d[3]: row g + 8, columns 2t, 2t + 1
//
// The lower address (smaller k) sits in the lower bits of a register. In elements:
//   16-bit, K = 16: 4t bytes are k = 2t, 2t + 1;   the second half is k = 2t + 8, 2t + 9
//   8-bit,  K = 32: 4t bytes are k = 4t .. 4t + 3; the second half is k = 4t + 16 .. 4t + 19
//   tf32,   K = 8:  4t bytes are k = t;            the second half is k = t + 4
// ldmatrix (ptx/ldmatrix.cuh) fills a from rows of 16 bytes.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

// Mma<E>::k: k of the m16n8 product of E (32 bytes of k; f32 means tf32, operands rounded by
// to_tf32 below); mma<E>(d, a, b) runs it. Sums of int8 wrap at 32 bits, as int32 sums do.
template <typename E>
struct Mma {
  static constexpr int k = 32 / sizeof(E);
};
template <typename E, typename A>
__device__ __forceinline__ void mma(A (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);

// mma_half<E>(d, a, b): half as many terms, with a[0] and a[1], b[0] of the above; 16-bit E.
template <typename E>
__device__ __forceinline__ void mma_half(f32 (&d)[4], const unsigned (&a)[2], unsigned b);

#define SPARSEGPU_MMA(E, A, CONSTRAINT, SHAPE, TYPES)                                     \
  template <>                                                                             \
  __device__ __forceinline__ void mma<E, A>(A(&d)[4], const unsigned (&a)[4],             \
                                            const unsigned (&b)[2]) {                     \
    asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES                              \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"     \
                 : CONSTRAINT(d[0]), CONSTRAINT(d[1]), CONSTRAINT(d[2]), CONSTRAINT(d[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));     \
  }
#define SPARSEGPU_MMA_HALF(E, SHAPE, TYPES)                                                     \
  template <>                                                                                   \
  __device__ __forceinline__ void mma_half<E>(f32(&d)[4], const unsigned (&a)[2], unsigned b) { \
    asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES                                    \
                 " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"                       \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                               \
                 : "r"(a[0]), "r"(a[1]), "r"(b));                                               \
  }

SPARSEGPU_MMA(bf16, f32, "+f", "m16n8k16", "f32.bf16.bf16.f32")
SPARSEGPU_MMA(f16, f32, "+f", "m16n8k16", "f32.f16.f16.f32")
SPARSEGPU_MMA(f32, f32, "+f", "m16n8k8", "f32.tf32.tf32.f32")
SPARSEGPU_MMA(s8, s32, "+r", "m16n8k32", "s32.s8.s8.s32")
#if __CUDA_ARCH__ >= 890
SPARSEGPU_MMA(e4m3, f32, "+f", "m16n8k32", "f32.e4m3.e4m3.f32")
#endif
SPARSEGPU_MMA_HALF(bf16, "m16n8k8", "f32.bf16.bf16.f32")
SPARSEGPU_MMA_HALF(f16, "m16n8k8", "f32.f16.f16.f32")
#undef SPARSEGPU_MMA
#undef SPARSEGPU_MMA_HALF

// float64, 8 x 8 x 4:  a: row g, k = t;  b: k = t, column g;  d[0], d[1]: row g, columns 2t, 2t
// + 1.
__device__ __forceinline__ void mma_f64_m8n8k4(f64 (&d)[2], f64 a, f64 b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};\n"
               : "+d"(d[0]), "+d"(d[1])
               : "d"(a), "d"(b));
}

// float64, 16 x 8 x 8. With g = lane / 4 and t = lane % 4: a[0], a[1]: rows g, g + 8 at k = t;
// a[2], a[3]: the same at k = t + 4; b[0], b[1]: k = t, t + 4 of column g; d as in the other
// m16n8 products. One instruction from compute capability 9.0 on; before, four of m8n8k4.
__device__ __forceinline__ void mma_f64_m16n8k8(f64 (&d)[4], const f64 (&a)[4], const f64 (&b)[2]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
  f64 top[2] = {d[0], d[1]}, bottom[2] = {d[2], d[3]};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    mma_f64_m8n8k4(top, a[2 * i], b[i]);
    mma_f64_m8n8k4(bottom, a[2 * i + 1], b[i]);
  }
  d[0] = top[0], d[1] = top[1], d[2] = bottom[0], d[3] = bottom[1];
#endif
}

// float32 rounded to tf32's 10-bit mantissa, nearest with ties away (the only rounding of
// cvt.tf32 on 8.0). PTX ISA, "cvt".
__device__ __forceinline__ unsigned to_tf32(f32 x) {
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(r) : "f"(x));
  return r;
}

}  // namespace sparsegpu
