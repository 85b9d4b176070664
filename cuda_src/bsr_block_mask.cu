// Which blocks of a dense matrix hold a nonzero: mask[b, i, j] for the bm x bk block (i, j).
//
// One thread block reads a tile of bm rows and `columns_per_tile` whole blocks. Consecutive threads
// (threadIdx.x) go along the direction in which the matrix lies in memory: `swapped` says that this
// is down a column.
//
// -DT: element type (common/types.cuh).

#include "common/types.cuh"
#include "common/view.cuh"

constexpr int THREADS = 256;
constexpr int MOST_COLUMNS = 256;  // block columns of a tile: one flag each

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_block_mask(b8* mask, const View dense, const Batch batch, long long tiles, long long items,
                   long long block_rows, long long block_columns, int bm, int bk,
                   int columns_per_tile, int swapped) {
  __shared__ int holds[MOST_COLUMNS];
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  const int row0 = swapped ? threadIdx.x : threadIdx.y;
  const int row_step = swapped ? blockDim.x : blockDim.y;
  const int column0 = swapped ? threadIdx.y : threadIdx.x;
  const int column_step = swapped ? blockDim.y : blockDim.x;

  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const long long tile = item % tiles;
    const long long i = item / tiles % block_rows;
    const long long b = item / tiles / block_rows;
    const long long j0 = tile * columns_per_tile;
    const long long left = block_columns - j0;
    const int blocks = left < columns_per_tile ? (int)left : columns_per_tile;

    for (int j = thread; j < blocks; j += THREADS) holds[j] = 0;
    __syncthreads();
    const T* corner = (const T*)dense.ptr + batch_offset(dense, batch, b) + i * bm * dense.row +
                      j0 * bk * dense.col;
    for (int c = column0; c < blocks * bk; c += column_step) {
      bool any = false;
      for (int r = row0; r < bm; r += row_step) {
        any |= !is_zero(corner[r * dense.row + c * dense.col]);
      }
      if (any) atomicOr(&holds[c / bk], 1);  // several threads may meet here
    }
    __syncthreads();
    b8* row = mask + (b * block_rows + i) * block_columns + j0;
    for (int j = thread; j < blocks; j += THREADS) row[j] = b8{(unsigned char)holds[j]};
  }
}
