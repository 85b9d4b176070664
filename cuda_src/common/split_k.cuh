// The end of a tile of a product of row groups: outputs, or partial sums of split-K.
//
// Long groups are split along k (engines/cuda/paths/_split_k.py). Each split writes the sums of its
// tile to workspace, and bsr_addmm_sm90_reduce.cu adds them in the order of the splits. Workspace
// has the tiles of a split, slice of tall blocks, matrix and column of tiles one after the other;
// within a tile, each warp's fragments of eight columns, four values a lane.
#pragma once

#include "common/ceil_div.cuh"
#include "common/epilogue_store.cuh"
#include "common/tile_scheduler.cuh"
#include "common/types.cuh"

namespace sparsegpu {

// The number of a tile in workspace; `slice` counts the slices of all splits.
template <int TileN>
__device__ __forceinline__ long long partial_tile(long long slice, long long batch,
                                                  long long batches, long long column_tile,
                                                  long long n) {
  return (slice * batches + batch) * ceil_div(n, TileN) + column_tile;
}

template <typename A>
struct alignas(4 * sizeof(A)) FragmentSums {
  A at[4];
};

// The fragments of a lane of warp number `warp` (of Warps) of a tile of TileN columns. Those of
// neighbouring columns are 32 elements apart.
template <int TileN, int Warps, typename A>
__device__ __forceinline__ FragmentSums<A>* partial_sums(A* partials, long long tile, int warp) {
  FragmentSums<A>* fragments = reinterpret_cast<FragmentSums<A>*>(partials);
  return fragments + (tile * Warps + warp) * (TileN / 8 * 32) + threadIdx.x % 32;
}

// Apply the epilogue to the sixteen rows of a tile that are this warp's, and store them; with
// SplitK, store the sums of a split to workspace.
template <Store How, bool SplitK, typename Op, typename Tile, typename Index, typename A, int Sums>
__device__ __forceinline__ void store_tile(const Tile& tile, int warp, A (&sum)[Sums],
                                           unsigned char* buffers, const View& out,
                                           const Batch& batch, const TensorMap& out_map,
                                           const RowGroups<Index>& schedule,
                                           const RowGroupProblem& problem, A* partials,
                                           const typename Op::Args& epilogue) {
  typedef typename Tile::Shape Shape;
  constexpr int TileN = 2 * Sums;
  unsigned number = tile.group;
  if constexpr (SplitK) {
    const SplitGroup item = schedule.splits[tile.group];
    if (item.split >= 0) {
      const long long at =
          partial_tile<TileN>((long long)item.split * Shape::SLICES_M + tile.slice, tile.batch,
                              problem.batches, tile.column_tile, problem.n);
      FragmentSums<A>* fragments = partial_sums<TileN, Shape::TILE_M / 16>(partials, at, warp);
#pragma unroll
      for (int j = 0; j < Sums / 4; ++j)
        fragments[32 * j] = {sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]};
      return;
    }
    number = item.group;
  }
  const long long group = number - (problem.pattern_batched ? tile.batch * problem.groups : 0);
  const long long top =
      Shape::output_row(schedule, number, group, 16 * warp + tile.slice * Shape::TILE_M, problem.m);
  if (top < problem.m)
    finish_tile<How, Op>(epilogue, sum, buffers, out, batch, out_map, tile.batch, top,
                         (long long)tile.column_tile * TileN, problem.n);
}

}  // namespace sparsegpu
