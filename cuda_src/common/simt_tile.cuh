// A tile of a matrix product by plain multiply-adds: what all SIMT products share.
//
// A thread block computes HEIGHT x WIDTH outputs, DEPTH terms at a time:
//
//     outputs[m][n] += sum over k of left[k][m] * right[k][n]
//
// Both operand tiles are in shared memory, widened to the accumulator's type A. A thread keeps
// THREAD_M x THREAD_N outputs in registers, in rows and columns that lie a stride apart, so that
// neighbouring threads read neighbouring words of shared memory and write neighbouring outputs.
// Where a tile has few outputs (a matrix-vector product, tiny blocks), LANE_COUNT threads share
// each of them: a lane sums every LANE_COUNT-th term and the lanes' sums are added at the end, in a
// fixed order, so that the same inputs give the same bits.
#pragma once

#include "common/ceil_div.cuh"
#include "common/warp_reduce.cuh"

namespace sparsegpu {

template <typename A, int HEIGHT, int WIDTH, int DEPTH, int LANE_COUNT>
struct SimtTile {
  static constexpr int THREAD_M = HEIGHT < 4 ? HEIGHT : 4, THREAD_N = WIDTH < 4 ? WIDTH : 4;
  static constexpr int ROW_THREADS = HEIGHT / THREAD_M, COL_THREADS = WIDTH / THREAD_N;
  static constexpr int THREADS = ROW_THREADS * COL_THREADS * LANE_COUNT;
  static_assert(HEIGHT % THREAD_M == 0 && WIDTH % THREAD_N == 0, "whole register tiles");
  static_assert(LANE_COUNT <= 32 && (LANE_COUNT & (LANE_COUNT - 1)) == 0,
                "lanes are summed by shuffles");
  static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps");

  // The operand tiles; one column more than needed avoids bank conflicts of transposing stores.
  struct SharedTiles {
    A left[DEPTH][HEIGHT + 1];
    A right[DEPTH][WIDTH + 1];
  };

  // Fill an operand tile: tile[k][x] = element(x, k) for k < terms, x < extent, and zero for the
  // other x, whose outputs are not written. Neighbouring threads take neighbouring k or x,
  // whichever lies closer together in memory. A thread loads several elements before it stores the
  // first, so that it waits for memory once.
  template <int PITCH, typename Element>
  static __device__ __forceinline__ void fill(A (&tile)[DEPTH][PITCH], int extent, int terms,
                                              bool k_is_contiguous, Element element) {
    constexpr int EXTENT = PITCH - 1, SIZE = DEPTH * EXTENT;
    constexpr int MOST = sizeof(A) < 8 ? 8 : 32 / sizeof(A);
    constexpr int SHARE = ceil_div(SIZE, THREADS), BATCH = SHARE < MOST ? SHARE : MOST;
    for (int first = threadIdx.x; first < SIZE; first += BATCH * THREADS) {
      A batch[BATCH];
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        const int e = first + i * THREADS;
        const int k = k_is_contiguous ? e % DEPTH : e / EXTENT;
        const int x = k_is_contiguous ? e / DEPTH : e % EXTENT;
        batch[i] = k < terms && x < extent ? element(x, k) : A(0);
      }
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        const int e = first + i * THREADS;
        const int k = k_is_contiguous ? e % DEPTH : e / EXTENT;
        const int x = k_is_contiguous ? e / DEPTH : e % EXTENT;
        if (k < terms && x < EXTENT) tile[k][x] = batch[i];
      }
    }
  }

  // This thread's outputs: rows row + i * ROW_THREADS, columns col + j * COL_THREADS.
  A sum[THREAD_M][THREAD_N];
  int row, col, lane;

  // `out_by_column`: neighbouring threads take neighbouring rows instead of columns, for an output
  // whose columns are contiguous.
  __device__ __forceinline__ explicit SimtTile(bool out_by_column) {
    lane = threadIdx.x % LANE_COUNT;
    const int thread = threadIdx.x / LANE_COUNT;
    row = out_by_column ? thread % ROW_THREADS : thread / COL_THREADS;
    col = out_by_column ? thread / ROW_THREADS : thread % COL_THREADS;
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j) sum[i][j] = A(0);
  }

  // Add the products of the tiles' first `terms` terms.
  __device__ __forceinline__ void multiply(const SharedTiles& tiles, int terms) {
#pragma unroll 4
    for (int k = lane; k < terms; k += LANE_COUNT) {
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

  // Add the lanes' partial sums and call write(m, n, sum) for this thread's part of the outputs
  // within rows x columns. Every thread of the block must reach this.
  template <typename Write>
  __device__ __forceinline__ void finish(int rows, int columns, Write write) {
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j) {
#pragma unroll
        for (int step = LANE_COUNT / 2; step > 0; step /= 2)
          sum[i][j] += shuffle_xor(sum[i][j], step);
        const int m = row + i * ROW_THREADS, n = col + j * COL_THREADS;
        // The lanes share the writing, too.
        if ((i * THREAD_N + j) % LANE_COUNT == lane && m < rows && n < columns)
          write(m, n, sum[i][j]);
      }
  }
};

}  // namespace sparsegpu
