// Tiles of a dense matrix cut into blocks: the rows of one block row, of several whole blocks each.
#pragma once

namespace sparsegpu {

// A tile: block row i of matrix b, block columns from j0 on.
struct BlockGridTile {
  static constexpr int THREADS = 256;
  static constexpr int MOST_BLOCKS = 256;
  long long b, i, j0;
  int blocks;

  __device__ __forceinline__ BlockGridTile(long long tile, long long tiles, long long block_rows,
                                           long long block_columns, int columns_per_tile) {
    i = tile / tiles % block_rows;
    b = tile / tiles / block_rows;
    j0 = tile % tiles * columns_per_tile;
    const long long left = block_columns - j0;
    blocks = left < columns_per_tile ? int(left) : columns_per_tile;
  }
};

// Which elements of a tile a thread takes, the first one and the strides. Consecutive threads
// (threadIdx.x) go along the contiguous dimension of the matrix: down a column, if `by_column`.
struct BlockGridThread {
  int row, row_step, column, column_step;

  __device__ __forceinline__ explicit BlockGridThread(int by_column) {
    row = by_column ? threadIdx.x : threadIdx.y;
    row_step = by_column ? blockDim.x : blockDim.y;
    column = by_column ? threadIdx.y : threadIdx.x;
    column_step = by_column ? blockDim.y : blockDim.x;
  }
};

}  // namespace sparsegpu
