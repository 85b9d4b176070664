// A tile of a matrix product by plain multiply-adds: what all SIMT products share.
//
// A block of threads computes TILE_M x TILE_N outputs, TILE_K terms at a time:
//
//     outputs[m][n] += sum over k of left[k][m] * right[k][n]
//
// Both operand tiles stand in shared memory, widened to the accumulator's type. A thread keeps
// THREAD_M x THREAD_N outputs in registers, in rows and columns that lie a stride apart, so that
// neighbouring threads read neighbouring words of shared memory and write neighbouring outputs.
// Where a tile has few outputs (a matrix-vector product, tiny blocks), LANES threads share each
// of them: a lane sums every LANES-th term and the lanes' sums are added at the end, in a fixed
// order, so that the same inputs give the same bits.
//
// The host chooses -DTILE_M, -DTILE_N, -DTILE_K and -DLANES (runtime/config.py, `simt_tile`).
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

constexpr int THREAD_M = TILE_M < 4 ? TILE_M : 4;
constexpr int THREAD_N = TILE_N < 4 ? TILE_N : 4;
constexpr int ROW_THREADS = TILE_M / THREAD_M;
constexpr int COL_THREADS = TILE_N / THREAD_N;
constexpr int THREADS = ROW_THREADS * COL_THREADS * LANES;

static_assert(TILE_M % THREAD_M == 0 && TILE_N % THREAD_N == 0, "whole register tiles");
static_assert(LANES <= 32 && (LANES & (LANES - 1)) == 0, "lanes are summed by shuffles");
static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps");

// The operand tiles; one column more than needed keeps transposing stores off one bank.
template <typename A>
struct OperandTiles {
  A left[TILE_K][TILE_M + 1];
  A right[TILE_K][TILE_N + 1];
};

// Fill an operand tile: tile[k][x] = element(x, k) for k < terms, x < extent, and zero for the
// other x, whose outputs nobody writes. Neighbouring threads take neighbouring k or x, whichever
// lies closer together in memory. A thread loads several elements before it stores the first, so
// that it waits for memory once.
template <int EXTENT, typename A, typename Element>
__device__ __forceinline__ void fill_tile(A (&tile)[TILE_K][EXTENT + 1], int extent, int terms,
                                          bool k_is_contiguous, Element element) {
  constexpr int SIZE = TILE_K * EXTENT;
  constexpr int MOST = sizeof(A) < 8 ? 8 : 32 / sizeof(A);
  constexpr int SHARE = (SIZE + THREADS - 1) / THREADS, BATCH = SHARE < MOST ? SHARE : MOST;
  for (int first = threadIdx.x; first < SIZE; first += BATCH * THREADS) {
    A batch[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int e = first + i * THREADS;
      const int k = k_is_contiguous ? e % TILE_K : e / EXTENT;
      const int x = k_is_contiguous ? e / TILE_K : e % EXTENT;
      batch[i] = k < terms && x < extent ? element(x, k) : A(0);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int e = first + i * THREADS;
      const int k = k_is_contiguous ? e % TILE_K : e / EXTENT;
      const int x = k_is_contiguous ? e / TILE_K : e % EXTENT;
      if (k < terms && x < EXTENT) tile[k][x] = batch[i];
    }
  }
}

__device__ __forceinline__ s32 shuffle_xor(s32 x, int lane) {
  return __shfl_xor_sync(0xffffffffu, x, lane);
}
__device__ __forceinline__ f32 shuffle_xor(f32 x, int lane) {
  return __shfl_xor_sync(0xffffffffu, x, lane);
}
__device__ __forceinline__ f64 shuffle_xor(f64 x, int lane) {
  return __shfl_xor_sync(0xffffffffu, x, lane);
}
template <typename R>
__device__ __forceinline__ Complex<R> shuffle_xor(Complex<R> x, int lane) {
  return {shuffle_xor(x.re, lane), shuffle_xor(x.im, lane)};
}

// This thread's outputs: rows row + i * ROW_THREADS, columns col + j * COL_THREADS.
template <typename A>
struct OutputTile {
  A sum[THREAD_M][THREAD_N];
  int row, col, lane;

  // `columns_apart`: neighbouring threads take neighbouring rows instead of columns, for an
  // output whose columns are contiguous.
  __device__ __forceinline__ explicit OutputTile(bool columns_apart) {
    lane = threadIdx.x % LANES;
    const int place = threadIdx.x / LANES;
    row = columns_apart ? place % ROW_THREADS : place / COL_THREADS;
    col = columns_apart ? place / ROW_THREADS : place % COL_THREADS;
    clear();
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j) sum[i][j] = A(0);
  }

  // Add the products of the tiles' first `terms` terms.
  __device__ __forceinline__ void multiply(const OperandTiles<A>& tiles, int terms) {
#pragma unroll 4
    for (int k = lane; k < terms; k += LANES) {
      A left[THREAD_M], right[THREAD_N];
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i) left[i] = tiles.left[k][row + i * ROW_THREADS];
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j) right[j] = tiles.right[k][col + j * COL_THREADS];
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) sum[i][j] = fma_acc(left[i], right[j], sum[i][j]);
    }
  }

  // Add up the lanes' shares and call write(m, n, sum) for this thread's part of the outputs
  // within rows x columns. Every thread of the block must come here.
  template <typename Write>
  __device__ __forceinline__ void finish(int rows, int columns, Write write) {
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j) {
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) sum[i][j] += shuffle_xor(sum[i][j], step);
        const int m = row + i * ROW_THREADS, n = col + j * COL_THREADS;
        // The lanes share the writing, too.
        if ((i * THREAD_N + j) % LANES == lane && m < rows && n < columns) write(m, n, sum[i][j]);
      }
  }
};

}  // namespace sparsegpu
