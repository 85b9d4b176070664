// A tile of a 2:4 product without tensor cores: HEIGHT rows, WIDTH columns. DEPTH packed values of
// each row at a time are loaded to shared memory, each with the row of `dense` that it meets; so
// are these rows, 2 * DEPTH of them. A thread sums 4 rows by WIDTH / 16 columns, one product after
// the other.
#pragma once

#include "common/output_matrix.cuh"
#include "common/semi_structured.cuh"

namespace sparsegpu {

// Packed rows, `rows` of them from row `first` on of a matrix of `all`; Index numbers its elements.
template <typename E, typename Index>
struct PackedRows {
  const E* values;
  const typename Meta24<sizeof(E)>::type* meta;
  Index first, all, pitch;
  int rows;
};

template <typename E, int HEIGHT, int WIDTH, int DEPTH>
struct SparseSimtTile {
  typedef typename Acc<E>::type A;
  typedef Format24<sizeof(E)> Format;
  static constexpr int THREAD_M = 4, THREAD_N = WIDTH / 16, THREADS = HEIGHT / THREAD_M * 16;
  static_assert(WIDTH % 16 == 0, "sixteen threads share a row");

  struct SharedTiles {
    A left[HEIGHT][DEPTH + 1];
    unsigned char meets[HEIGHT][DEPTH];
    A right[2 * DEPTH][WIDTH];
  };

  A sum[THREAD_M][THREAD_N] = {};
  int row, col;  // the thread's first

  __device__ __forceinline__ SparseSimtTile()
      : row(threadIdx.x / 16 * THREAD_M), col(threadIdx.x % 16) {}

  // Add the products of the packed columns from `start` on, `terms` of them, and the `columns`
  // columns of `dense` from those of `panel` on.
  template <typename Index>
  __device__ __forceinline__ void add(SharedTiles& tiles, const PackedRows<E, Index>& packed,
                                      Index start, int terms, const E* panel, const View& dense,
                                      int columns) {
    for (int e = threadIdx.x; e < HEIGHT * DEPTH; e += THREADS) {
      const int m = e / DEPTH, p = e % DEPTH;
      if (m >= packed.rows || p >= terms) continue;
      const Index at = packed.first + m;
      tiles.left[m][p] = to_acc(packed.values[at * packed.pitch + start + p]);
      tiles.meets[m][p] =
          (unsigned char)(p / Format::kept * Format::group +
                          place_in_group<sizeof(E)>(packed.meta, at, start + p, packed.all));
    }
    const bool by_column = dense.row < dense.col;
    for (int e = threadIdx.x; e < 2 * DEPTH * WIDTH; e += THREADS) {
      const int k = by_column ? e % (2 * DEPTH) : e / WIDTH;
      const int n = by_column ? e / (2 * DEPTH) : e % WIDTH;
      if (k < 2 * terms && n < columns)
        tiles.right[k][n] = to_acc(panel[(2 * start + k) * dense.row + n * dense.col]);
    }
    __syncthreads();
    for (int p = 0; p < terms; ++p) {
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i) {
        if (row + i >= packed.rows) continue;
        const A a = tiles.left[row + i][p];
        const A* met = tiles.right[tiles.meets[row + i][p]];
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) sum[i][j] = fma_acc(a, met[col + 16 * j], sum[i][j]);
      }
    }
    __syncthreads();
  }

  // Finish and write the sums: those of `rows` rows of a tile that begins at (top, left) of matrix
  // `b` of the output, and of the matrix's `columns` columns.
  template <typename Op>
  __device__ __forceinline__ void write(const View& out, const Batch& batch,
                                        const typename Op::Args& epilogue, long long b,
                                        long long top, long long left, int rows,
                                        long long columns) const {
    const OutputMatrix<Op> matrix(out, batch, epilogue, b);
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j) {
        const long long m = top + row + i, n = left + col + 16 * j;
        if (row + i < rows && n < columns) matrix.store(sum[i][j], m, n);
      }
  }
};

}  // namespace sparsegpu
