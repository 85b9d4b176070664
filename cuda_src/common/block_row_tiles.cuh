// How thread blocks take the tiles of a product of block rows.
#pragma once

namespace sparsegpu {

struct Sizes {
  long long batches, block_rows, columns;  // of the output; columns is N
  int bm, bk;
};

// One tile of the output: of HEIGHT rows of a block row, or those that it has left, and of WIDTH
// columns. The tiles of all block rows come before those of the next columns.
template <int HEIGHT, int WIDTH>
struct Tile {
  long long block_row;
  long long top, first_col;
  int batch;
  int first_row;  // within the block row
  int rows, columns;

  __device__ __forceinline__ Tile(long long tile, const Sizes& sizes) {
    const int slices = (sizes.bm + HEIGHT - 1) / HEIGHT;
    const long long row_tiles = sizes.batches * sizes.block_rows * slices;
    const long long x = tile % row_tiles;
    first_col = tile / row_tiles * WIDTH;
    first_row = int(x % slices) * HEIGHT;
    block_row = x / slices % sizes.block_rows;
    batch = int(x / slices / sizes.block_rows);
    top = block_row * sizes.bm + first_row;
    rows = min(HEIGHT, sizes.bm - first_row);
    columns = int(min((long long)WIDTH, sizes.columns - first_col));
  }
  static __device__ __forceinline__ long long count(const Sizes& sizes) {
    return sizes.batches * sizes.block_rows * ((sizes.bm + HEIGHT - 1) / HEIGHT) *
           ((sizes.columns + WIDTH - 1) / WIDTH);
  }
};

}  // namespace sparsegpu
