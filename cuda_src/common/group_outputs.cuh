// The end of a tile of a product of row groups. -DPARTS and what tells its size are those of the
// source.
#pragma once

#include "common/group_parts.cuh"
#include "common/strip.cuh"
#include "common/tile_walk.cuh"

namespace sparsegpu {

// Finish and write the sixteen rows of a tile that are this warp's, number `warp`, or put the sums
// of a part to workspace.
template <Store STORING, typename Op, typename A>
__device__ __forceinline__ void write_outputs(const Tile& tile, int warp, A (&sum)[TILE_N / 2],
                                              unsigned char* strips, const View& out,
                                              const Batch& batch, const TensorMap& out_map,
                                              const RowGroups<INDEX>& schedule, const Sizes& sizes,
                                              A* parts, const typename Op::Args& epilogue) {
  unsigned number = tile.group;
  if constexpr (PARTS) {
    const GroupPiece piece = schedule.pieces[tile.group];
    if (piece.part >= 0) {
      const long long at = part_tile<TILE_N>((long long)piece.part * SLICES_M + tile.slice,
                                             tile.batch, sizes.batches, tile.panel, sizes.columns);
      write_part(part_fragments<TILE_N, TILE_M / 16>(parts, at, warp), sum);
      return;
    }
    number = piece.group;
  }
  const long long group = number - (sizes.pattern_batched ? tile.batch * sizes.groups : 0);
  const long long top =
      row_of_group(schedule, number, group, 16 * warp + tile.slice * TILE_M, sizes.rows);
  if (top < sizes.rows)
    finish_tile<STORING, Op>(epilogue, sum, strips, out, batch, out_map, tile.batch, top,
                             (long long)tile.panel * TILE_N, sizes.columns);
}

}  // namespace sparsegpu
