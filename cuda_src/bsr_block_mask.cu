// Which blocks of a dense matrix hold a nonzero: mask[b, i, j] for the bm x bk block (i, j).
//
// A thread block reads a BlockGridTile (common/block_grid.cuh).
//
// -DT: element type (common/types.cuh).

#include "common/block_grid.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

extern "C" __global__ void __launch_bounds__(BlockGridTile::THREADS, 1)
    bsr_block_mask(b8* mask, const View dense, const Batch batch, long long tiles, long long items,
                   long long block_rows, long long block_columns, int bm, int bk,
                   int columns_per_tile, int by_column) {
  __shared__ int holds[BlockGridTile::MOST_BLOCKS];
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  const BlockGridThread step(by_column);

  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const BlockGridTile tile(item, tiles, block_rows, block_columns, columns_per_tile);
    const int blocks = tile.blocks;
    for (int j = thread; j < blocks; j += BlockGridTile::THREADS) holds[j] = 0;
    __syncthreads();
    const T* corner = (const T*)dense.ptr + batch_offset(dense, batch, tile.b) +
                      tile.i * bm * dense.row + tile.j0 * bk * dense.col;
    for (int c = step.column; c < blocks * bk; c += step.column_step) {
      bool any = false;
      for (int r = step.row; r < bm; r += step.row_step) {
        any |= !is_zero(corner[r * dense.row + c * dense.col]);
      }
      if (any) atomicOr(&holds[c / bk], 1);  // several threads may set a flag
    }
    __syncthreads();
    b8* row = mask + (tile.b * block_rows + tile.i) * block_columns + tile.j0;
    for (int j = thread; j < blocks; j += BlockGridTile::THREADS)
      row[j] = b8{(unsigned char)holds[j]};
  }
}
