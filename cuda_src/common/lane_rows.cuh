// Products of a warp's rows with listed ones, as plain attention has them.
//
// A thread block has up to MOST warps, each with OWN_ROWS rows of its own, and a list of TILE = 32
// rows of another matrix, a lane each (-1: none). LaneDots gives each lane the dot products of the
// warp's rows with its listed row; add_listed adds multiples of the listed rows to sums in which a
// lane stands for every 32nd column.
#pragma once

#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp_reduce.cuh"

namespace sparsegpu {

template <typename E, int OWN_ROWS, int MOST>
struct LaneDots {
  typedef typename Acc<E>::type A;
  static constexpr int TILE = 32;
  static constexpr int DEPTH = sizeof(A) == 8 ? 32 : 64;  // features in shared memory

  A listed[TILE][DEPTH + 1];
  A own[MOST * OWN_ROWS][DEPTH];

  // Set the dot products over `features` columns. The warps' rows are the first `rows` of `left`,
  // the listed ones rows of `right`. All threads take part, after a barrier behind the last use.
  __device__ __forceinline__ void operator()(A (&dot)[OWN_ROWS], const E* left,
                                             const View& left_view, int rows, const E* right,
                                             const View& right_view,
                                             const long long (&numbers)[TILE], int features) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int tile_rows = blockDim.x / 32 * OWN_ROWS;
#pragma unroll
    for (int r = 0; r < OWN_ROWS; ++r) dot[r] = A(0);
    for (int e0 = 0; e0 < features; e0 += DEPTH) {
      const int depth = features - e0 < DEPTH ? features - e0 : DEPTH;
      if (e0 > 0) __syncthreads();
      for (int place = threadIdx.x; place < TILE * DEPTH; place += blockDim.x) {
        const int n = place / DEPTH, e = place % DEPTH;
        const long long j = numbers[n];
        listed[n][e] = e < depth && j >= 0
                           ? to_acc(right[j * right_view.row + (e0 + e) * right_view.col])
                           : A(0);
      }
      for (int place = threadIdx.x; place < tile_rows * DEPTH; place += blockDim.x) {
        const int n = place / DEPTH, e = place % DEPTH;
        own[n][e] = e < depth && n < rows
                        ? to_acc(left[n * left_view.row + (e0 + e) * left_view.col])
                        : A(0);
      }
      __syncthreads();
#pragma unroll 4
      for (int e = 0; e < depth; ++e) {
        const A x = listed[lane][e];
#pragma unroll
        for (int r = 0; r < OWN_ROWS; ++r) dot[r] = fma_acc(own[warp * OWN_ROWS + r][e], x, dot[r]);
      }
    }
  }
};

// Add to the sums of the warp's row r the listed rows whose lanes' bits are set in counts[r], each
// times weight[r] of its lane. Others are left out, not multiplied by zero, and a row that no
// counts[r] has is not read. `rows` points at the lane's first column, of which there are `columns`
// to the end.
template <typename E, int OWN_ROWS, int LANE_COLUMNS, typename A>
__device__ __forceinline__ void add_listed(A (&sums)[OWN_ROWS][LANE_COLUMNS],
                                           const A (&weight)[OWN_ROWS],
                                           const unsigned (&counts)[OWN_ROWS], long long number,
                                           const E* rows, const View& view, int columns) {
  constexpr int AHEAD = 2;  // rows loaded before they are used
  unsigned any = 0;
#pragma unroll
  for (int r = 0; r < OWN_ROWS; ++r) any |= counts[r];
  for (int n0 = 0; n0 < 32; n0 += AHEAD) {
    if ((any >> n0 & ((1u << AHEAD) - 1)) == 0) continue;
    A x[AHEAD][LANE_COLUMNS];
#pragma unroll
    for (int n = 0; n < AHEAD; ++n) {
      const long long j = shuffle(number, n0 + n);
      const bool used = any >> (n0 + n) & 1;
#pragma unroll
      for (int t = 0; t < LANE_COLUMNS; ++t) {
        x[n][t] = used && 32 * t < columns
                      ? to_acc(rows[j * view.row + (long long)(32 * t) * view.col])
                      : A(0);
      }
    }
#pragma unroll
    for (int n = 0; n < AHEAD; ++n) {
#pragma unroll
      for (int r = 0; r < OWN_ROWS; ++r) {
        const A w = shuffle(weight[r], n0 + n);
        if (counts[r] >> (n0 + n) & 1) {
#pragma unroll
          for (int t = 0; t < LANE_COLUMNS; ++t) sums[r][t] = fma_acc(w, x[n][t], sums[r][t]);
        }
      }
    }
  }
}

}  // namespace sparsegpu
