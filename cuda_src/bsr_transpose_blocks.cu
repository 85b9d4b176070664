// Blocks transposed and put in another order: out[t] = transpose of blocks[order[t]].
//
// Where blocks consist of squares of 16 x 16 bytes, a thread transposes squares in registers. Other
// blocks pass through shared memory, so that both sides are accessed along their rows; a thread
// block moves several tiles of up to 32 x 32 elements: whole small blocks, or parts of large ones.
//
// -DT: element type.
// -DWIDE=1: bm and bk are multiples of 16 bytes, and all blocks begin at multiples of them.

#include "common/ceil_div.cuh"
#include "common/types.cuh"
#include "common/vector16.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;
constexpr int SIDE = 32;
constexpr int ELEMENTS = SIDE * SIDE;  // of all tiles of a thread block
// A row of a tile is padded to an odd length against bank conflicts: at most half as much again.
constexpr int PADDED = ELEMENTS + ELEMENTS / 2;

#if WIDE
// `tiles` counts squares.
extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_transpose_blocks(T* out, const T* blocks, const long long* order, long long tiles,
                         long long items, int tiles_per_item, int bm, int bk) {
  constexpr int E = PER_VEC16<T>;
  const int down = bm / E, across = bk / E;
  // Lanes go along a stripe of up to eight squares, then down it: so 128 bytes of a row are read at
  // once, and at least half as many written.
  const int stripe = min(across & -across, 8);
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const long long tile = item * tiles_per_item + threadIdx.x;
    if (tile >= tiles) return;
    const long long t = tile / (down * across);
    const int within = int(tile - t * (down * across));
    const int r = within / stripe % down * E;
    const int c = (within / stripe / down * stripe + within % stripe) * E;
    const T* from = blocks + (order[t] * bm + r) * bk + c;
    T* to = out + (t * bk + c) * bm + r;
    Vec16 square[E];
#pragma unroll
    for (int j = 0; j < E; ++j) square[j] = *reinterpret_cast<const Vec16*>(from + j * bk);
#pragma unroll
    for (int j = 0; j < E; ++j) *reinterpret_cast<Vec16*>(to + j * bm) = transposed<T>(square, j);
  }
}
#else
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_transpose_blocks(T* out, const T* blocks, const long long* order, long long tiles,
                         long long items, int tiles_per_item, int bm, int bk) {
  __shared__ T shared[PADDED];
  const int tile_rows = bm < SIDE ? bm : SIDE, tile_columns = bk < SIDE ? bk : SIDE;
  const int across = ceil_div(bk, SIDE), tiles_per_block = ceil_div(bm, SIDE) * across;
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
      const int within_block = (int)((first + local) - t * tiles_per_block);
      const int row = within_block / across * SIDE + r, column = within_block % across * SIDE + c;
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
      const int within_block = (int)((first + local) - t * tiles_per_block);
      const int row = within_block / across * SIDE + r, column = within_block % across * SIDE + c;
      if (row < bm && column < bk) {
        out[t * block_area + (long long)column * bm + row] =
            shared[(local * tile_rows + r) * pitch + c];
      }
    }
  }
}
#endif
