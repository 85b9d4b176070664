// Blocks transposed and put in another order: out[t] = transpose of blocks[order[t]].
//
// Through shared memory, so that both sides are read and written along their rows. A thread block
// moves several tiles of up to 32 x 32 elements: whole small blocks, or pieces of large ones.
//
// -DT: element type.

#include "common/types.cuh"

constexpr int THREADS = 256;
constexpr int SIDE = 32;
constexpr int ELEMENTS = SIDE * SIDE;  // of all tiles of a thread block
// A row of a tile is padded to an odd length against bank conflicts: at most half as much again.
constexpr int PADDED = ELEMENTS + ELEMENTS / 2;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_transpose_blocks(T* out, const T* blocks, const long long* order, long long tiles,
                         long long items, int tiles_per_item, int bm, int bk) {
  __shared__ T shared[PADDED];
  const int tile_rows = bm < SIDE ? bm : SIDE, tile_columns = bk < SIDE ? bk : SIDE;
  const int across = (bk + SIDE - 1) / SIDE, tiles_per_block = (bm + SIDE - 1) / SIDE * across;
  const int area = tile_rows * tile_columns, pitch = tile_columns | 1;
  const long long block_area = (long long)bm * bk;

  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const long long first = item * tiles_per_item;
    const long long left = tiles - first;
    const int here = left < tiles_per_item ? (int)left : tiles_per_item;
    __syncthreads();  // the tiles before these have been written
    for (int place = threadIdx.x; place < here * area; place += THREADS) {
      const int local = place / area, within = place - local * area;
      const int r = within / tile_columns, c = within - r * tile_columns;
      const long long t = (first + local) / tiles_per_block;
      const int piece = (int)((first + local) - t * tiles_per_block);
      const int row = piece / across * SIDE + r, column = piece % across * SIDE + c;
      if (row < bm && column < bk) {
        shared[(local * tile_rows + r) * pitch + c] =
            blocks[order[t] * block_area + row * bk + column];
      }
    }
    __syncthreads();
    for (int place = threadIdx.x; place < here * area; place += THREADS) {
      const int local = place / area, within = place - local * area;
      const int c = within / tile_rows, r = within - c * tile_rows;
      const long long t = (first + local) / tiles_per_block;
      const int piece = (int)((first + local) - t * tiles_per_block);
      const int row = piece / across * SIDE + r, column = piece % across * SIDE + c;
      if (row < bm && column < bk) {
        out[t * block_area + (long long)column * bm + row] =
            shared[(local * tile_rows + r) * pitch + c];
      }
    }
  }
}
