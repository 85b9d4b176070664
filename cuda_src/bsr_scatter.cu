// A BSR matrix as a dense one: every element is written once, zeros between the blocks.
//
// A thread block writes a BlockGridTile (common/block_grid.cuh). It first scans the row's column
// indices (any order) for the first and the last block of each of its columns. They agree unless a
// block is stored more than once; then all between them are scanned in order and the duplicates
// summed, rounded once (bool: or), so that the result is deterministic.
//
// -DT: element type; -DINDEX: of the pattern's indices (s32, s64); -DWIDE: elements of a row that a
// thread moves at a time. More than one needs rows of blocks and of `dense` that are contiguous and
// begin at multiples of that many elements.

#include "common/block_grid.cuh"
#include "common/vector16.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

constexpr int AT_ONCE = 8;  // rows whose loads a thread has in flight
constexpr int BYTES = WIDE * sizeof(T);
// Elements are moved as whole words: copied one by one, pairs of 16-bit elements would be unpacked.
typedef Word<(BYTES < 4 ? BYTES : 4)>::type Unit;
struct alignas(BYTES) Words {
  Unit w[BYTES / sizeof(Unit)];
};
constexpr long long NONE = 0x7fffffffffffffffLL;

extern "C" __global__ void __launch_bounds__(BlockGridTile::THREADS, WIDE > 1 ? 4 : 1)
    bsr_scatter(const View dense, const View data, const View indptr, const View indices,
                const Batch batch, long long tiles, long long items, long long block_rows,
                long long block_columns, int bm, int bk, int columns_per_tile, int by_column) {
  __shared__ long long first[BlockGridTile::MOST_BLOCKS], last[BlockGridTile::MOST_BLOCKS];
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  const BlockGridThread step(by_column);
  const int row0 = step.row, row_step = step.row_step;

  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const BlockGridTile tile(item, tiles, block_rows, block_columns, columns_per_tile);
    const long long i = tile.i, b = tile.b, j0 = tile.j0;
    const int blocks = tile.blocks;
    const INDEX* row_starts = (const INDEX*)indptr.ptr + batch_offset(indptr, batch, b);
    const INDEX* columns = (const INDEX*)indices.ptr + batch_offset(indices, batch, b);
    const T* values = (const T*)data.ptr + batch_offset(data, batch, b);
    const long long start = row_starts[i * indptr.row], end = row_starts[(i + 1) * indptr.row];

    __syncthreads();  // the tile before this one has been written
    for (int j = thread; j < blocks; j += BlockGridTile::THREADS) {
      first[j] = NONE;
      last[j] = -1;
    }
    __syncthreads();
    for (long long p = start + thread; p < end; p += BlockGridTile::THREADS) {
      const long long j = columns[p * indices.row] - j0;
      if (j >= 0 && j < blocks) {
        atomicMin(&first[j], p);
        atomicMax(&last[j], p);
      }
    }
    __syncthreads();

    T* corner =
        (T*)dense.ptr + batch_offset(dense, batch, b) + i * bm * dense.row + j0 * bk * dense.col;
    for (int c = step.column * WIDE; c < blocks * bk; c += step.column_step * WIDE) {
      const int j = c / bk;
      const long long p0 = first[j], p1 = last[j];
      const long long within = row0 * bk + (c - j * bk);  // of a block, of the first row
      const long long row_in_block = (long long)row_step * bk * data.col;
      const T* from = values + p0 * data.row + within * data.col;
      T* to = corner + row0 * dense.row + c * dense.col;
      if (p0 < p1) {
        for (int r = row0; r < bm; r += row_step) {
#pragma unroll
          for (int e = 0; e < WIDE; ++e) {
            typename Acc<T>::type sum = to_acc(from[e]);
            for (long long p = p0 + 1; p <= p1; ++p)
              if (columns[p * indices.row] == j0 + j) sum += to_acc(from[(p - p0) * data.row + e]);
            to[e] = round_to<T>(sum);
          }
          from += row_in_block;
          to += row_step * dense.row;
        }
        continue;
      }
      // One block or none: all loads of a few rows are in flight before the first store.
      for (int r = row0; r < bm; r += AT_ONCE * row_step) {
        Words rows[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
          rows[k] = Words{};
          if (p0 == p1 && r + k * row_step < bm) rows[k] = *(const Words*)from;
          from += row_in_block;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
          if (r + k * row_step < bm) *(Words*)to = rows[k];
          to += row_step * dense.row;
        }
      }
    }
  }
}
