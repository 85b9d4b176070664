// wgmma on sparse tensor cores: d += a @ b, two of four of a's k stored (9.0a only).
// PTX ISA, "Asynchronous warpgroup level multiply-and-accumulate: wgmma.mma_async.sp", "Sparse
// matrix storage".
//
// As ptx/wgmma.cuh, but a is 64 x K / 2 from shared memory and b is K x N, K being 64 bytes of b:
// 32 for 16-bit types, 64 for s8 and e4m3, 16 for f32 (tf32, one of two stored). Both operands are
// K-major but for the b of 16-bit types. The word `meta` says for warp w, g = lane / 4, t = lane %
// 4, which k are stored:
//
//   16-bit, tf32   rows 16w + g (low half) and 16w + g + 8, half t % 2 of K, in the lanes whose
//                  t / 2 is SELECTOR
//   8-bit          row 16w + g + 8 * (t % 2), half t / 2 of K, in all lanes (SELECTOR is 0)
#pragma once

#include "ptx/wgmma.cuh"

namespace sparsegpu {

#define WGMMA_SP_HALVES(N, NAME, LIST, VALUES, A, B, META, S, TRANSPOSE)                   \
  asm volatile("wgmma.mma_async.sp.sync.aligned.m64n" N "k32.f32." NAME "." NAME " {" LIST \
               "}, %" A ", %" B ", %" META ", %" S ", 1, 1, 1, 0, %" TRANSPOSE ";\n"       \
               : VALUES                                                                    \
               : "l"(a), "l"(b), "r"(meta), "n"(SELECTOR), "n"(B_MN_MAJOR))

// TAIL: the signs of a and b, which int8 does not have.
#define WGMMA_SP_K_MAJOR(N, TYPES, LIST, VALUES, A, B, META, S, TAIL)                    \
  asm volatile("wgmma.mma_async.sp.sync.aligned.m64n" N TYPES " {" LIST "}, %" A ", %" B \
               ", %" META ", %" S ", 1" TAIL ";\n"                                       \
               : VALUES                                                                  \
               : "l"(a), "l"(b), "r"(meta), "n"(SELECTOR))

// wgmma_sp<E, SELECTOR, B_MN_MAJOR>(d, a, b, meta); P0 .. P4 are the operands behind d, by number.
#define WGMMA_SP_OF(N, REGISTERS, LIST, VALUES, P0, P1, P2, P3, P4)                           \
  template <typename E, int SELECTOR, bool B_MN_MAJOR>                                        \
  __device__ __forceinline__ void wgmma_sp(f32(&d)[REGISTERS], unsigned long long a,          \
                                           unsigned long long b, unsigned meta) {             \
    static_assert(sizeof(E) == 2 || !B_MN_MAJOR, "b is K-major");                             \
    if constexpr (IS_TF32<E>)                                                                 \
      WGMMA_SP_K_MAJOR(N, "k16.f32.tf32.tf32", LIST, VALUES("+f"), P0, P1, P2, P3, ", 1, 1"); \
    else if constexpr (sizeof(E) == 1)                                                        \
      WGMMA_SP_K_MAJOR(N, "k64.f32.e4m3.e4m3", LIST, VALUES("+f"), P0, P1, P2, P3, ", 1, 1"); \
    else if constexpr (IS_BF16<E>)                                                            \
      WGMMA_SP_HALVES(N, "bf16", LIST, VALUES("+f"), P0, P1, P2, P3, P4);                     \
    else                                                                                      \
      WGMMA_SP_HALVES(N, "f16", LIST, VALUES("+f"), P0, P1, P2, P3, P4);                      \
  }                                                                                           \
  template <typename E, int SELECTOR, bool B_MN_MAJOR>                                        \
  __device__ __forceinline__ void wgmma_sp(s32(&d)[REGISTERS], unsigned long long a,          \
                                           unsigned long long b, unsigned meta) {             \
    static_assert(!B_MN_MAJOR, "b is K-major");                                               \
    WGMMA_SP_K_MAJOR(N, "k64.s32.s8.s8", LIST, VALUES("+r"), P0, P1, P2, P3, "");             \
  }

#define WGMMA_SP_LIST16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_SP_LIST32 WGMMA_SP_LIST16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_SP_VALUES16(C) WGMMA_D8(C, 0)
#define WGMMA_SP_VALUES32(C) WGMMA_D8(C, 0), WGMMA_D8(C, 8)

WGMMA_SP_OF("16", 8, WGMMA_SP_LIST16, WGMMA_SP_VALUES16, "8", "9", "10", "11", "12")
WGMMA_SP_OF("32", 16, WGMMA_SP_LIST32, WGMMA_SP_VALUES32, "16", "17", "18", "19", "20")
WGMMA_SP_OF("64", 32, WGMMA_LIST64, WGMMA_VALUES64, "32", "33", "34", "35", "36")
WGMMA_SP_OF("128", 64, WGMMA_LIST128, WGMMA_VALUES128, "64", "65", "66", "67", "68")
WGMMA_SP_OF("256", 128, WGMMA_LIST256, WGMMA_VALUES256, "128", "129", "130", "131", "132")

}  // namespace sparsegpu
