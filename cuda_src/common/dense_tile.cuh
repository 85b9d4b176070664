// Tiles of a dense matrix cut into blocks: bm rows of `columns_per_tile` whole blocks each.
// Consecutive threads (threadIdx.x) go along the direction in which the matrix lies in memory:
// `swapped` says that this is down a column.
#pragma once

namespace sparsegpu {

constexpr int THREADS = 256;
constexpr int MOST_COLUMNS = 256;  // block columns of a tile

// Where a thread begins in each tile, and what it goes on by.
struct Steps {
  int row, row_step, column, column_step;

  __device__ __forceinline__ explicit Steps(int swapped) {
    row = swapped ? threadIdx.x : threadIdx.y;
    row_step = swapped ? blockDim.x : blockDim.y;
    column = swapped ? threadIdx.y : threadIdx.x;
    column_step = swapped ? blockDim.y : blockDim.x;
  }
};

// The tile: block row i of matrix b, block columns from j0 on.
struct DenseTile {
  long long b, i, j0;
  int blocks;

  __device__ __forceinline__ DenseTile(long long item, long long tiles, long long block_rows,
                                       long long block_columns, int columns_per_tile) {
    i = item / tiles % block_rows;
    b = item / tiles / block_rows;
    j0 = item % tiles * columns_per_tile;
    const long long left = block_columns - j0;
    blocks = left < columns_per_tile ? int(left) : columns_per_tile;
  }
};

}  // namespace sparsegpu
