// How threads bring a slice of `dense` to shared memory for mma: the rows that DEPTH terms meet, of
// up to TILE_N columns, as a tile of common/warp_tile.cuh. -DT and -DTILE_N are those of the
// source.
//
//   Layout::rows      rows of 16-byte pieces; the slice is kept as it is, k by k
//   Layout::columns   columns of 16-byte pieces; kept column by column
//   Layout::bytes     8-bit rows: transposed on their way to columns, 4 x 4 bytes at a time
//   Layout::strided   element by element, kept column by column
#pragma once

#include "common/warp_tile.cuh"
#include "ptx/cp_async.cuh"

namespace sparsegpu {

template <Layout LAYOUT, int DEPTH, int THREADS>
struct DenseSlice {
  static constexpr int SIZE = sizeof(T), PIECE = 16 / SIZE;
  static constexpr bool BY_LINE = LAYOUT != Layout::rows;
  typedef OperandTile<T, TILE_N, DEPTH, BY_LINE> Tile;

  const T* panel;  // dense, at the tile's first column
  long long row, col;
  int columns;  // of the tile

  // From a row of dense to the one `rows` later.
  __device__ __forceinline__ long long down(long long rows) const {
    return LAYOUT == Layout::columns ? rows : rows * row;
  }

  // Term y + c meets the row of dense that row_at(y, c) points to, c known when it is compiled;
  // there are `terms`, one at least, and zeros behind them, for which row_at may say anything. In
  // whole pieces of columns the rows of a piece follow each other.
  template <typename RowAt>
  __device__ __forceinline__ void bring(unsigned char* slice, int terms, RowAt row_at) const {
    if constexpr (LAYOUT == Layout::rows) {
      share_copies<THREADS, TILE_N / PIECE, DEPTH>([&](int piece, int y, int c) {
        const int n = piece * PIECE, bytes = min(max(columns - n, 0) * SIZE, 16);
        cp_async_partial<16, false>(slice + Tile::place(n, y + c), row_at(y, c) + n,
                                    y + c < terms ? bytes : 0);
      });
    } else if constexpr (LAYOUT == Layout::columns) {
      constexpr int PIECES = DEPTH / PIECE;
      const int first = threadIdx.x % PIECES * PIECE;
      const T* from = row_at(first, 0);
      const int there = first < terms ? columns : 0;
      share_copies<THREADS, PIECES, TILE_N>([&](int, int y, int c) {
        cp_async<16>(slice + Tile::place(y + c, first), from + y * col + c * col, y + c < there);
      });
    } else if constexpr (LAYOUT == Layout::bytes) {
      transpose_bytes<Tile, TILE_N, DEPTH, THREADS>(slice, [&](int k, int n) {
        return four_bytes(row_at(k, 0) + n, k < terms ? columns - n : 0);
      });
    } else {
      const bool by_column = row < col;
#pragma unroll 1
      for (int e = threadIdx.x; e < DEPTH * TILE_N; e += THREADS) {
        const int k = by_column ? e % DEPTH : e / TILE_N;
        const int n = by_column ? e / DEPTH : e % TILE_N;
        *reinterpret_cast<T*>(slice + Tile::place(n, k)) =
            k < terms && n < columns ? row_at(k, 0)[n * col] : zero_of<T>();
      }
    }
  }
};

}  // namespace sparsegpu
