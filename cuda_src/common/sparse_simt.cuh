// A tile of a 2:4 product without tensor cores: HEIGHT rows, TILE_N columns. DEPTH packed values of
// each row at a time come to shared memory, each with the row of `dense` that it meets; so do these
// rows, 2 * DEPTH of them. A thread sums 4 rows by TILE_N / 16 columns, one product after the
// other.
//
// -DT, -DOUT, -DEPILOGUE, -DACT and -DTILE_N are those of the source.
#pragma once

#include "common/kernel_epilogue.cuh"
#include "common/semi_structured.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

namespace sparsegpu {

typedef Acc<T>::type A;
typedef Format24<sizeof(T)> Format;
typedef Meta24<sizeof(T)>::type Meta;

template <int HEIGHT, int DEPTH>
struct SparseTiles {
  A left[HEIGHT][DEPTH + 1];
  unsigned char meets[HEIGHT][DEPTH];
  A right[2 * DEPTH][TILE_N];
};

// Packed rows, `rows` of them from row `first` on of a matrix of `all`; Index numbers its elements.
template <typename Index>
struct PackedRows {
  const T* values;
  const Meta* meta;
  Index first, all, pitch;
  int rows;
};

template <int HEIGHT, int DEPTH>
struct SparseSums {
  static constexpr int ROWS = 4, COLUMNS = TILE_N / 16, THREADS = HEIGHT / ROWS * 16;
  static_assert(TILE_N % 16 == 0, "sixteen threads share a row");
  A sum[ROWS][COLUMNS];
  int row, col;  // the thread's first

  __device__ __forceinline__ SparseSums() : row(threadIdx.x / 16 * ROWS), col(threadIdx.x % 16) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) sum[i][j] = A(0);
  }

  // Add the products of the packed columns from `start` on, `terms` of them, and the `columns`
  // columns of a panel of dense.
  template <typename Index>
  __device__ __forceinline__ void add(SparseTiles<HEIGHT, DEPTH>& tiles,
                                      const PackedRows<Index>& packed, Index start, int terms,
                                      const T* panel, const View& dense, int columns) {
    for (int e = threadIdx.x; e < HEIGHT * DEPTH; e += THREADS) {
      const int m = e / DEPTH, p = e % DEPTH;
      if (m >= packed.rows || p >= terms) continue;
      const Index at = packed.first + m;
      tiles.left[m][p] = to_acc(packed.values[at * packed.pitch + start + p]);
      tiles.meets[m][p] =
          (unsigned char)(p / Format::kept * Format::group +
                          place_in_group<sizeof(T)>(packed.meta, at, start + p, packed.all));
    }
    const bool by_column = dense.row < dense.col;
    for (int e = threadIdx.x; e < 2 * DEPTH * TILE_N; e += THREADS) {
      const int k = by_column ? e % (2 * DEPTH) : e / TILE_N;
      const int n = by_column ? e / (2 * DEPTH) : e % TILE_N;
      if (k < 2 * terms && n < columns)
        tiles.right[k][n] = to_acc(panel[(2 * start + k) * dense.row + n * dense.col]);
    }
    __syncthreads();
    for (int p = 0; p < terms; ++p) {
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        if (row + i >= packed.rows) continue;
        const A a = tiles.left[row + i][p];
        const A* met = tiles.right[tiles.meets[row + i][p]];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) sum[i][j] = fma_acc(a, met[col + 16 * j], sum[i][j]);
      }
    }
    __syncthreads();
  }

  // Finish and write the sums: those of `rows` rows of a tile that begins at (top, left) of matrix
  // `b` of the output, and of the matrix's `columns` columns.
  __device__ __forceinline__ void write(const View& out, const Batch& batch,
                                        const KernelEpilogueArgs<A>& epilogue, long long b,
                                        long long top, long long left, int rows,
                                        long long columns) const {
    const KernelEpilogue<A, OUT> finish(epilogue, batch, b);
    OUT* out_matrix = batch_ptr<OUT>(out, batch, b);
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        const long long m = top + row + i, n = left + col + 16 * j;
        if (row + i < rows && n < columns)
          out_matrix[element_offset(out, m, n)] = finish(sum[i][j], m, n);
      }
  }
};

}  // namespace sparsegpu
