// A tile of a 2:4 product by mma.sp: how slices of its operands lie in shared memory, and their
// products. semi_structured_addmm_sm80.cu says what a slice is, and each source how it is brought.
//
// -DT, -DDENSE, -DTILE_M, -DTILE_N and -DSTAGES are those of the source.
#pragma once

#include "common/semi_structured.cuh"
#include "common/types.cuh"
#include "common/warp_tile.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma_sp.cuh"

typedef Acc<T>::type A;

constexpr int SIZE = sizeof(T);
constexpr Layout LAYOUT =
    SIZE == 1 && Layout::DENSE == Layout::rows ? Layout::bytes : Layout::DENSE;
constexpr int STEPS = 2;                 // mma.sp steps of a slice
constexpr int STEP_K = MmaSp<T>::k;      // 64 bytes of dense k
constexpr int SLICE_K = STEPS * STEP_K;  // dense k of a slice
constexpr int PIECE = 16 / SIZE;         // elements of a 16-byte copy
constexpr int THREADS = 128, WARPS_M = TILE_M == 32 ? 1 : 2, WARPS_N = 4 / WARPS_M;
constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
constexpr int META_ROWS = SIZE == 1 ? 16 : 32;  // rows that 32 words of metadata describe
constexpr int META_WORDS = WARP_M / META_ROWS;  // words of a lane for one step
static_assert(WARP_M % 32 == 0 && WARP_N % 8 == 0, "a warp multiplies 32 x 8 outputs at a time");

// The two tiles of a slice (common/warp_tile.cuh).
constexpr bool RIGHT_BY_LINE = LAYOUT != Layout::rows;
constexpr int LEFT_PITCH = LINE_PITCH<STEPS * 32>;
constexpr int RIGHT_PITCH = RIGHT_BY_LINE ? LINE_PITCH<STEPS * 64> : K_PITCH<T, TILE_N>;
constexpr int LEFT_BYTES = TILE_M * LEFT_PITCH;
constexpr int RIGHT_BYTES = (RIGHT_BY_LINE ? TILE_N : SLICE_K) * RIGHT_PITCH;
constexpr int STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES;  // semi_structured.py knows this

// The sums take the place of the stages at the end, so that the outputs are written in the order
// in which they lie in memory. An odd pitch: rows and columns are both read without conflicts.
constexpr int SUM_PITCH = TILE_N + 1;
static_assert(TILE_M * SUM_PITCH * 4 <= STAGES * STAGE_BYTES, "the sums fit where the stages were");

// What a row beyond M is told: a code that is legal in every format.
constexpr u32 ABSENT_META = 0x44444444u;

// d += a @ b for the 16 rows number `i` of a warp. 16-bit metadata: the words of 32 rows serve two
// products, the upper 16 rows through lanes 0, 1 of each four (selector 0), the lower through 2, 3.
template <typename U>
__device__ __forceinline__ void sparse_mma(A (&d)[4], const u32 (&a)[4], const u32 (&b)[4],
                                           const u32 (&meta)[META_WORDS], int i) {
  if constexpr (sizeof(U) != 1) {
    if (i % 2 == 0)
      MmaSp<U>::template run<0>(d, a, b, meta[i / 2]);
    else
      MmaSp<U>::template run<1>(d, a, b, meta[i / 2]);
  } else if constexpr (IN_PARTS<U>) {
    A part[4] = {};
    MmaSp<U>::template run<0>(part, a, b, meta[i]);
#pragma unroll
    for (int r = 0; r < 4; ++r) d[r] += part[r];
  } else {
    MmaSp<U>::template run<0>(d, a, b, meta[i]);
  }
}

typedef WarpTile<A, WARP_M, WARP_N, WARPS_N> Outputs;

// Add the products of one slice, of which `steps` steps are within the matrix.
__device__ __forceinline__ void multiply(Outputs& outputs, const unsigned char* left,
                                         const unsigned char* right,
                                         const u32 (&meta)[STEPS][META_WORDS], long long steps) {
  const Fragments<T, SixteenRows, true, LEFT_PITCH> rows(left, outputs.row);
  const Fragments<T, EightColumns, RIGHT_BY_LINE, RIGHT_PITCH> columns(right, outputs.col);
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    if (s >= steps) break;
    u32 a[WARP_M / 16][4];
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) rows.load(a[i], 16 * i, 2 * s);
#pragma unroll
    for (int j = 0; j < WARP_N / 8; ++j) {
      u32 b[4];
      columns.load(b, 8 * j, 4 * s);
#pragma unroll
      for (int i = 0; i < WARP_M / 16; ++i) sparse_mma<T>(outputs.sum[i][j], a[i], b, meta[s], i);
    }
  }
}

// Lay the sums out as a TILE_M x TILE_N matrix in shared memory.
__device__ __forceinline__ void store(const Outputs& outputs, A* sums) {
#pragma unroll
  for (int i = 0; i < WARP_M / 16; ++i) {
    A* corner = sums + (outputs.row + 16 * i) * SUM_PITCH + outputs.col;
    outputs.sixteen_rows(i, [&](int m, int n, A sum) { corner[m * SUM_PITCH + n] = sum; });
  }
}
