// How threads bring a slice of `dense` to shared memory for mma: the rows that DEPTH terms meet, of
// up to TILE_N columns, as a tile of common/warp_tile.cuh. -DT and -DTILE_N are those of the
// source.
//
//   Layout::rows      rows of 16-byte pieces; the slice is kept as it is, k by k
//   Layout::columns   columns of 16-byte pieces; kept column by column
//   Layout::bytes     8-bit rows: 4 x 4 bytes at a time, SQUARES of them side by side, are
//                     transposed on their way to columns
//   Layout::strided   element by element, kept column by column
#pragma once

#include "common/warp_tile.cuh"
#include "ptx/cp_async.cuh"

template <Layout LAYOUT, int DEPTH, int SQUARES, int THREADS>
struct DenseSlice {
  static constexpr int SIZE = sizeof(T), PIECE = 16 / SIZE;
  static constexpr bool BY_LINE = LAYOUT != Layout::rows;
  static constexpr int PITCH = BY_LINE ? LINE_PITCH<DEPTH * SIZE> : K_PITCH<T, TILE_N>;
  static constexpr int BYTES = (BY_LINE ? TILE_N : DEPTH) * PITCH;

  const T* panel;  // dense, at the tile's first column
  long long row, col;
  int columns;  // of the tile

  // Term k meets row row_of(k) of dense; there are `terms`, one at least, and zeros behind them. In
  // whole pieces of columns the rows of a piece follow each other.
  template <typename RowOf>
  __device__ __forceinline__ void bring(unsigned char* slice, int terms, RowOf row_of) const {
    if constexpr (LAYOUT == Layout::rows) {
      share_copies<THREADS, TILE_N / PIECE, DEPTH>([&](int piece, int k) {
        const int n = piece * PIECE, bytes = min(max(columns - n, 0) * SIZE, 16);
        const T* from = panel + row_of(k < terms ? k : 0) * row + (bytes > 0 ? n : 0);
        cp_async_partial<16>(slice + k * PITCH + n * SIZE, from, k < terms ? bytes : 0);
      });
    } else if constexpr (LAYOUT == Layout::columns) {
      constexpr int PIECES = DEPTH / PIECE;
      const int first = threadIdx.x % PIECES * PIECE;
      const T* from = panel + row_of(first < terms ? first : 0);
      const int there = first < terms ? columns : 0;
      share_copies<THREADS, PIECES, TILE_N>([&](int piece, int n) {
        cp_async<16>(slice + n * PITCH + piece * 16, n < there ? from + n * col : panel, n < there);
      });
    } else if constexpr (LAYOUT == Layout::bytes) {
      transpose_bytes<TILE_N, DEPTH, SQUARES, THREADS, PITCH>(slice, [&](int k, int n) {
        const T* from = panel + row_of(k < terms ? k : 0) * row + n;
        return four_bytes(from, k < terms ? columns - n : 0);
      });
    } else {
      const bool by_column = row < col;
      for (int e = threadIdx.x; e < DEPTH * TILE_N; e += THREADS) {
        const int k = by_column ? e % DEPTH : e / TILE_N;
        const int n = by_column ? e / DEPTH : e % TILE_N;
        reinterpret_cast<T*>(slice + n * PITCH)[k] =
            k < terms && n < columns ? panel[row_of(k) * row + n * col] : zero_of<T>();
      }
    }
  }
};
