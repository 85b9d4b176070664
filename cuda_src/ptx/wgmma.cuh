// wgmma: a tensor-core product of a warpgroup, d += a @ b, on Hopper (9.0a only).
// PTX ISA, "Asynchronous warpgroup level matrix multiply-accumulate instructions".
//
// d is 64 x N float32 (int32 for int8 operands): warp w (of four) holds rows 16w .. 16w + 15, and
// with g = lane / 4, t = lane % 4, d[4j], d[4j + 1] are (row g, columns 8j + 2t, 8j + 2t + 1) and
// d[4j + 2], d[4j + 3] the same columns of row g + 8. a is 64 x K from shared memory or, as the a
// of mma.m16n8kK (ptx/mma.cuh) in each warp, from registers; b is K x N from shared memory. K is 32
// bytes: 16, for int8 32, and 8 for f32, which means tf32 (bits that it lacks are cut off).
//
// The products are asynchronous: wgmma_fence comes before the first one, wgmma_commit closes a
// group of them, and wgmma_wait waits for groups; until then d and the registers of a must not be
// touched.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

// The descriptor of an operand in shared memory: rows of Width = 32, 64 or 128 bytes, swizzled by
// the tensor map so that the pattern repeats every eight rows.
//
// K-major (k contiguous, rows are m or n): `stride` is the distance in bytes of eight rows, and the
// next product's k is 32 bytes further. MN-major (m or n contiguous, rows are k; 16-bit only):
// `stride` is again the distance of eight rows, `leading` that of the next Width bytes of m or n,
// and the next product's k is 16 rows further.
template <int Width>
__device__ __forceinline__ unsigned long long smem_descriptor(unsigned address, int stride,
                                                              int leading) {
  static_assert(Width == 32 || Width == 64 || Width == 128, "a swizzle");
  constexpr unsigned long long mode = Width == 128 ? 1 : Width == 64 ? 2 : 3;
  return mode << 62 | (unsigned long long)(stride >> 4) << 32 |
         (unsigned long long)(leading >> 4) << 16 | (address & 0x3FFFF) >> 4;
}

// The descriptor of what lies `bytes` further: one addition, where another descriptor takes five.
__device__ __forceinline__ unsigned long long smem_further(unsigned long long descriptor,
                                                           int bytes) {
  return (descriptor & ~0xFFFFFFFFull) | unsigned(unsigned(descriptor) + (bytes >> 4));
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Wait until all but the latest N groups have ended.
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}
// The same, once `sum`, which is not negative, is known. ptxas moves a wait up, in front of work
// that was to run beside the products; a branch on a result of that work holds it back. (With a
// trap behind the branch ptxas no longer gives a warpgroup the registers that it requested.)
template <int N>
__device__ __forceinline__ void wgmma_wait_behind(float sum) {
  if (__any_sync(~0u, sum < 0)) asm volatile("nanosleep.u32 0;\n");
  wgmma_wait<N>();
}

// Release registers of a warpgroup to the thread block's pool, or request some from it.
// PTX ISA, "setmaxnreg".
template <int Registers>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(Registers));
}

// Lists of operands for the asm statements below: 32 registers of d, by number and by value.
#define WGMMA_R0                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, "         \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_R1                             \
  "%32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_R2                             \
  "%64, %65, %66, %67, %68, %69, %70, %71, " \
  "%72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, " \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_R3                                     \
  "%96, %97, %98, %99, %100, %101, %102, %103, "     \
  "%104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_D8(C, i) \
  C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3]), C(d[i + 4]), C(d[i + 5]), C(d[i + 6]), C(d[i + 7])
#define WGMMA_D32(C, i) WGMMA_D8(C, i), WGMMA_D8(C, i + 8), WGMMA_D8(C, i + 16), WGMMA_D8(C, i + 24)

// For 16-bit types.
#define WGMMA_HALVES_SHARED(N, NAME, LIST, VALUES, A, B, TA, TB)                                 \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" N "k16.f32." NAME "." NAME " {" LIST "}, %" A \
               ", %" B ", 1, 1, 1, %" TA ", %" TB ";\n"                                          \
               : VALUES                                                                          \
               : "l"(a), "l"(b), "n"(A_MN_MAJOR), "n"(B_MN_MAJOR))

#define WGMMA_HALVES_REGISTERS(N, NAME, LIST, VALUES, A0, A1, A2, A3, B, TB)                       \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" N "k16.f32." NAME "." NAME " {" LIST "}, {%" A0 \
               ", %" A1 ", %" A2 ", %" A3 "}, %" B ", 1, 1, 1, %" TB ";\n"                         \
               : VALUES                                                                            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(B_MN_MAJOR))

// For types that wgmma reads only as K-major; TAIL: the signs of a and b, which int8 does not have.
#define WGMMA_K_MAJOR_SHARED(N, TYPES, LIST, VALUES, A, B, TAIL)                                 \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" N TYPES " {" LIST "}, %" A ", %" B ", 1" TAIL \
               ";\n"                                                                             \
               : VALUES                                                                          \
               : "l"(a), "l"(b))

#define WGMMA_K_MAJOR_REGISTERS(N, TYPES, LIST, VALUES, A0, A1, A2, A3, B, TAIL)                  \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" N TYPES " {" LIST "}, {%" A0 ", %" A1 ", %" A2 \
               ", %" A3 "}, %" B ", 1" TAIL ";\n"                                                 \
               : VALUES                                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

template <typename E>
constexpr bool IS_BF16 = false;
template <>
constexpr bool IS_BF16<bf16> = true;
template <typename E>
constexpr bool IS_TF32 = false;
template <>
constexpr bool IS_TF32<f32> = true;

// wgmma<E, A_MN_MAJOR, B_MN_MAJOR>(d, a, b): a and b are descriptors.
// wgmma<E, B_MN_MAJOR>(d, a, b): a in registers.

// All overloads for N columns; P0 .. P5 are the operands behind d, by number.
#define WGMMA_OF(N, REGISTERS, LIST, VALUES, P0, P1, P2, P3, P4, P5)                         \
  template <typename E, bool A_MN_MAJOR, bool B_MN_MAJOR>                                    \
  __device__ __forceinline__ void wgmma(f32(&d)[REGISTERS], unsigned long long a,            \
                                        unsigned long long b) {                              \
    static_assert(!IS_TF32<E> || (!A_MN_MAJOR && !B_MN_MAJOR), "tf32 operands are K-major"); \
    if constexpr (IS_TF32<E>)                                                                \
      WGMMA_K_MAJOR_SHARED(N, "k8.f32.tf32.tf32", LIST, VALUES("+f"), P0, P1, ", 1, 1");     \
    else if constexpr (IS_BF16<E>)                                                           \
      WGMMA_HALVES_SHARED(N, "bf16", LIST, VALUES("+f"), P0, P1, P2, P3);                    \
    else                                                                                     \
      WGMMA_HALVES_SHARED(N, "f16", LIST, VALUES("+f"), P0, P1, P2, P3);                     \
  }                                                                                          \
  template <typename E, bool B_MN_MAJOR>                                                     \
  __device__ __forceinline__ void wgmma(f32(&d)[REGISTERS], const unsigned (&a)[4],          \
                                        unsigned long long b) {                              \
    static_assert(!IS_TF32<E> || !B_MN_MAJOR, "tf32 operands are K-major");                  \
    if constexpr (IS_TF32<E>)                                                                \
      WGMMA_K_MAJOR_REGISTERS(N, "k8.f32.tf32.tf32", LIST, VALUES("+f"), P0, P1, P2, P3, P4, \
                              ", 1, 1");                                                     \
    else if constexpr (IS_BF16<E>)                                                           \
      WGMMA_HALVES_REGISTERS(N, "bf16", LIST, VALUES("+f"), P0, P1, P2, P3, P4, P5);         \
    else                                                                                     \
      WGMMA_HALVES_REGISTERS(N, "f16", LIST, VALUES("+f"), P0, P1, P2, P3, P4, P5);          \
  }                                                                                          \
  template <typename E, bool A_MN_MAJOR, bool B_MN_MAJOR>                                    \
  __device__ __forceinline__ void wgmma(s32(&d)[REGISTERS], unsigned long long a,            \
                                        unsigned long long b) {                              \
    static_assert(!A_MN_MAJOR && !B_MN_MAJOR, "int8 operands are K-major");                  \
    WGMMA_K_MAJOR_SHARED(N, "k32.s32.s8.s8", LIST, VALUES("+r"), P0, P1, "");                \
  }                                                                                          \
  template <typename E, bool B_MN_MAJOR>                                                     \
  __device__ __forceinline__ void wgmma(s32(&d)[REGISTERS], const unsigned (&a)[4],          \
                                        unsigned long long b) {                              \
    static_assert(!B_MN_MAJOR, "int8 operands are K-major");                                 \
    WGMMA_K_MAJOR_REGISTERS(N, "k32.s32.s8.s8", LIST, VALUES("+r"), P0, P1, P2, P3, P4, ""); \
  }

#define WGMMA_LIST32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_LIST64 WGMMA_R0
#define WGMMA_LIST128 WGMMA_LIST64 ", " WGMMA_R1
#define WGMMA_LIST192 WGMMA_LIST128 ", " WGMMA_R2
#define WGMMA_LIST256 WGMMA_LIST192 ", " WGMMA_R3
#define WGMMA_VALUES32(C) WGMMA_D8(C, 0), WGMMA_D8(C, 8)
#define WGMMA_VALUES64(C) WGMMA_D32(C, 0)
#define WGMMA_VALUES128(C) WGMMA_VALUES64(C), WGMMA_D32(C, 32)
#define WGMMA_VALUES192(C) WGMMA_VALUES128(C), WGMMA_D32(C, 64)
#define WGMMA_VALUES256(C) WGMMA_VALUES192(C), WGMMA_D32(C, 96)

WGMMA_OF("32", 16, WGMMA_LIST32, WGMMA_VALUES32, "16", "17", "18", "19", "20", "21")
WGMMA_OF("64", 32, WGMMA_LIST64, WGMMA_VALUES64, "32", "33", "34", "35", "36", "37")
WGMMA_OF("128", 64, WGMMA_LIST128, WGMMA_VALUES128, "64", "65", "66", "67", "68", "69")
WGMMA_OF("192", 96, WGMMA_LIST192, WGMMA_VALUES192, "96", "97", "98", "99", "100", "101")
WGMMA_OF("256", 128, WGMMA_LIST256, WGMMA_VALUES256, "128", "129", "130", "131", "132", "133")

}  // namespace sparsegpu
