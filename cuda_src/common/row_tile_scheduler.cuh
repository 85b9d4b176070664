// How thread blocks take the tiles of a product of block rows, one after the other in a grid.
#pragma once

#include "common/ceil_div.cuh"
#include "common/view.cuh"

namespace sparsegpu {

struct BlockRowProblem {
  long long batches, block_rows, n;  // of the output
  int bm, bk;
};

// One tile of the output: of HEIGHT rows of a block row, or those that it has left, and of WIDTH
// columns. The tiles of all block rows come before those of the next columns.
template <int HEIGHT, int WIDTH>
struct BlockRowTile {
  long long block_row;
  long long top, first_col;
  int batch;
  int first_row;  // within the block row
  int rows, columns;

  __device__ __forceinline__ BlockRowTile(long long tile, const BlockRowProblem& problem) {
    const int slices = ceil_div(problem.bm, HEIGHT);
    const long long row_tiles = problem.batches * problem.block_rows * slices;
    const long long x = tile % row_tiles;
    first_col = tile / row_tiles * WIDTH;
    first_row = int(x % slices) * HEIGHT;
    block_row = x / slices % problem.block_rows;
    batch = int(x / slices / problem.block_rows);
    top = block_row * problem.bm + first_row;
    rows = min(HEIGHT, problem.bm - first_row);
    columns = int(min((long long)WIDTH, problem.n - first_col));
  }
  static __device__ __forceinline__ long long count(const BlockRowProblem& problem) {
    return problem.batches * problem.block_rows * ceil_div(problem.bm, HEIGHT) *
           ceil_div(problem.n, WIDTH);
  }

  // Where the bounds of the tile's blocks are: indptr of its block row.
  template <typename Index>
  __device__ __forceinline__ const Index* starts(const View& indptr, const Batch& shape) const {
    return batch_ptr<const Index>(indptr, shape, batch) + block_row * indptr.row;
  }
};

}  // namespace sparsegpu
