// A tile's rows of a row group. -DBM is that of the source.
#pragma once

#include "common/row_groups.cuh"

namespace sparsegpu {

constexpr int TILE_M = 128;
constexpr int SLICE_M = BM < TILE_M ? BM : TILE_M;    // rows of a block that a tile holds
constexpr int SLICES_M = (BM + TILE_M - 1) / TILE_M;  // tiles that a block's rows need
constexpr int ROWS = TILE_M / SLICE_M;                // block rows of a group

// The row of the output that is row `row` of a group, number `group` of its matrix and `number` of
// all; `rows` or more where there is none.
__device__ __forceinline__ long long row_of_group(const RowGroups<INDEX>& schedule, unsigned number,
                                                  long long group, int row, long long rows) {
  long long found = group * (BM * ROWS) + row;
  if (ROWS > 1 && row < BM * ROWS && schedule.block_rows) {
    const int block_row = schedule.block_rows[number * ROWS + row / BM];
    found = block_row < 0 ? rows : block_row * (long long)BM + row % BM;
  }
  return row < BM * ROWS ? found : rows;
}

}  // namespace sparsegpu
