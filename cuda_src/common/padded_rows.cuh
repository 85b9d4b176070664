// Rows in shared memory for products by multiply-adds of register tiles: a thread reads vectors of
// the same columns of neighbouring rows.
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

template <typename E>
struct alignas(16) Vector {
  static constexpr int SIZE = 16 / sizeof(E);
  E at[SIZE];
};

// Rows of COLUMNS elements. They are a vector longer, so that the same columns of neighbouring rows
// are in different banks.
template <typename E, int COLUMNS>
struct PaddedRows {
  static constexpr int WIDTH = COLUMNS, LENGTH = COLUMNS + Vector<E>::SIZE;
  E* at;

  __device__ __forceinline__ Vector<E> vector(int line, int column) const {
    return *reinterpret_cast<const Vector<E>*>(at + line * LENGTH + column);
  }
  // Copy `count` lines: `line(i)` says where line i lies (null: zeros), of whose columns there are
  // `columns`, whole vectors.
  template <int THREADS, typename Line>
  __device__ __forceinline__ void copy(int count, int columns, Line line) const {
    constexpr int VECTORS = COLUMNS / Vector<E>::SIZE;
    for (int i = threadIdx.x; i < count * VECTORS; i += THREADS) {
      const int column = i % VECTORS * Vector<E>::SIZE;
      const E* from = line(i / VECTORS);
      cp_async<16>(at + i / VECTORS * LENGTH + column, from + column,
                   from != nullptr && column < columns);
    }
  }
};

}  // namespace sparsegpu
