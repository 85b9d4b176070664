// Adding the sums of a tile of scatter_mm to the accumulators, some rows at a time by a warp.
#pragma once

#include "common/output_matrix.cuh"
#include "common/pack.cuh"

namespace sparsegpu {

// Where a tile's part lies in the accumulators, and how much of it there is. Alpha and beta of the
// epilogue are one.
template <typename Matrix>
struct TileAccumulators {
  typedef typename Matrix::Out Out;
  static constexpr int VECTOR = 16 / sizeof(Out);
  const Matrix& matrix;
  long long top, left;
  int rows, columns;
  bool vectors;  // whether rows may be read and written in vectors

  __device__ __forceinline__ TileAccumulators(const Matrix& matrix, long long top, long long left,
                                              int rows, int columns)
      : matrix(matrix), top(top), left(left), rows(rows), columns(columns) {
    const View& view = matrix.view;
    const Out* const first = matrix.out + element_offset(view, top, left);
    vectors = view.col == 1 && view.row % VECTOR == 0 && columns % VECTOR == 0 &&
              reinterpret_cast<unsigned long long>(first) % 16 == 0;
  }

  // Add ROWS rows of WIDTH sums from (row, col) of the part on. They are in shared memory, in lines
  // of PITCH; some accumulators are read before the first is written.
  template <int WIDTH, int PITCH, int ROWS = 16, typename A>
  __device__ __forceinline__ void add(const A* sums, int row, int col) const {
    const int lane = threadIdx.x % 32;
    // Integers go through the epilogue, where sums do not wrap.
    constexpr bool FLOATING = A(0.5f) != A(0);
    if (FLOATING && vectors) {
      constexpr int ACROSS = WIDTH / VECTOR,
                    SHARE = FLOATING ? ROWS * ACROSS / 32 : 1;  // of a lane
      Pack<Out, VECTOR> values[SHARE];
      const auto place = [&](int i, auto use) {
        const int m = (lane + 32 * i) / ACROSS, n = (lane + 32 * i) % ACROSS * VECTOR;
        if (row + m < rows && col + n < columns)
          use(matrix.out + (top + row + m) * matrix.view.row + left + col + n,
              sums + m * PITCH + n);
      };
#pragma unroll
      for (int i = 0; i < SHARE; ++i)
        place(i, [&](const Out* from, const A*) { values[i].load(from); });
#pragma unroll
      for (int i = 0; i < SHARE; ++i)
        place(i, [&](Out* to, const A* more) {
#pragma unroll
          for (int e = 0; e < VECTOR; ++e)
            values[i].value[e] = round_to<Out>(to_acc(values[i].value[e]) + more[e]);
          values[i].store(to);
        });
    } else {
#pragma unroll 1
      for (int e = lane; e < ROWS * WIDTH; e += 32) {
        const int m = e / WIDTH, n = e % WIDTH;
        if (row + m < rows && col + n < columns)
          matrix.store(sums[m * PITCH + n], top + row + m, left + col + n);
      }
    }
  }
};

}  // namespace sparsegpu
