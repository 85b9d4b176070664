// What the tensor-core kernels of attention make of the accumulators of a warp: scores and masks of
// sixteen queries (fragments: ptx/mma.cuh, d).
#pragma once

#include "common/tile_mask.cuh"
#include "common/online_softmax.cuh"
#include "ptx/mma.cuh"

namespace sparsegpu {

// Two neighbouring elements of a row, which are stored at once.
template <typename E>
struct alignas(2 * sizeof(E)) Neighbours {
  E first, second;
};

// The two rows of a tile that a lane has: g and g + 8 of the warp's.
template <typename Tile>
struct LaneQueries {
  int first;  // the warp's first row of the tile
  int block_row[2], row_in_block[2];
  int query[2];

  __device__ __forceinline__ LaneQueries(const Tile& tile, int first) : first(first) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(first + int(threadIdx.x % 32) / 4 + 8 * r, tile.rows - 1);
      // of a warp, where no block begins within its rows
      block_row[r] = Tile::block_row(Tile::BLOCK_M % 16 == 0 ? min(first, tile.rows - 1) : row);
      row_in_block[r] = tile.row_in_block(row);
      query[r] = tile.first + row;
    }
  }
};

// A strip of keys, for the two rows of a lane: what their blocks' states are, the first key, and
// its column in the block.
template <typename Index>
struct Strip {
  Index state[2];
  int key;
  int column;

  // Whether a row has to look at it, and whether a row sees all of it.
  template <typename Rows>
  __device__ __forceinline__ bool any(const Rows& rows, bool causal) const {
    return (state[0] != NOT_STORED && !(causal && key > rows.query[0])) ||
           (state[1] != NOT_STORED && !(causal && key > rows.query[1]));
  }
  template <typename Rows>
  __device__ __forceinline__ bool all(const Rows& rows, bool causal) const {
    return state[0] == ALL_TRUE && state[1] == ALL_TRUE && !(causal && key + 7 > rows.query[0]);
  }
};

// Turn accumulators of the strips first .. last - 1 into scores, -inf where they are not attended.
// `strip(j)` is a Strip; `whole`: everything is attended.
template <bool FOLDED, typename A, int N, typename Rows, typename Score, typename Mask,
          typename GetStrip>
__device__ __forceinline__ void score_strips(A (&scores)[N], int first, int last, const Rows& rows,
                                             const Score& score, const Mask& mask, bool whole,
                                             GetStrip strip) {
  if (FOLDED && whole) return;
#pragma unroll
  for (int j = first; j < last; ++j) {
    const auto here = strip(j);
    const int lane_column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      A x[2] = {scores[4 * j + 2 * r], scores[4 * j + 2 * r + 1]};
      if constexpr (!FOLDED)
        for (int i = 0; i < 2; ++i)
          x[i] = score.score(x[i], rows.query[r], here.key + lane_column + i);
      if (!whole) {
        bool attended[2];
        mask.strip(here.state[r], rows.row_in_block[r], here.column, lane_column, attended, x);
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (!attended[i] || !score.in_order(rows.query[r], here.key + lane_column + i))
            x[i] = minus_infinity<A>();
      }
      scores[4 * j + 2 * r] = x[0];
      scores[4 * j + 2 * r + 1] = x[1];
    }
  }
}

// The left operand of the second product, for the keys of one mma: weights 8 k .. 8 k + 7 of
// sixteen keys, 4 k .. 4 k + 3 of eight (TF32). A lane has the weights of keys 2t and 2t + 1 of
// eight: as TF32 they stand for terms t and t + 4, as AddedRows::add reads the values.
template <typename E, int N>
__device__ __forceinline__ void weight_fragment(unsigned (&a)[4], const float (&weights)[N],
                                                int k) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(E) == 4) {
      a[i] = to_tf32(weights[4 * k + i % 2 * 2 + i / 2]);
    } else {
      const E pair[2] = {round_to<E>(weights[8 * k + 2 * i]),
                         round_to<E>(weights[8 * k + 2 * i + 1])};
      memcpy(&a[i], pair, 4);
    }
  }
}

}  // namespace sparsegpu
