// How threads copy a slice of `dense` to shared memory for mma: the rows that DEPTH terms meet, of
// up to WIDTH columns, as an OperandTile.
//
//   Layout::rows      16-byte vectors of rows; stored by k
//   Layout::columns   16-byte vectors of columns; stored by column
//   Layout::bytes     8-bit rows: transposed on the way, 4 x 4 bytes at a time; stored by column
//   Layout::strided   element by element; stored by column
#pragma once

#include "common/cp_async_pipeline.cuh"
#include "common/view.cuh"
#include "common/warp_mma.cuh"

namespace sparsegpu {

// The first `count` of four bytes at an address aligned to 4, the others zero.
__device__ __forceinline__ unsigned four_bytes(const void* from, int count) {
  if (count >= 4) return *static_cast<const unsigned*>(from);
  unsigned word = 0;
  for (int i = 0; i < count; ++i)
    word |= unsigned(static_cast<const unsigned char*>(from)[i]) << (8 * i);
  return word;
}

// Fill a tile stored by line with an 8-bit operand whose lines are contiguous for each k:
// word(k, line) gives four lines' values for one k. A thread transposes squares of 4 x 4 bytes; a
// warp takes eight of them side by side (fewer where the tile ends) and so reads 32 contiguous
// bytes of each k.
template <typename Tile, int LINES, int DEPTH, int THREADS, typename Word>
__device__ __forceinline__ void transpose_bytes(unsigned char* tile, Word word) {
  constexpr int ACROSS = LINES / 4 < 8 ? LINES / 4 : 8, DOWN = 32 / ACROSS;
  constexpr int PANELS = LINES / 4 / ACROSS;
  for (int e = threadIdx.x; e < LINES / 4 * (DEPTH / 4); e += THREADS) {
    const int line = (e % ACROSS + e / 32 % PANELS * ACROSS) * 4;
    const int k = (e / ACROSS % DOWN + e / 32 / PANELS * DOWN) * 4;
    unsigned in[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) in[i] = word(k + i, line);
    const unsigned low01 = __byte_perm(in[0], in[1], 0x5140);
    const unsigned low23 = __byte_perm(in[2], in[3], 0x5140);
    const unsigned high01 = __byte_perm(in[0], in[1], 0x7362);
    const unsigned high23 = __byte_perm(in[2], in[3], 0x7362);
    const unsigned out[4] = {__byte_perm(low01, low23, 0x5410), __byte_perm(low01, low23, 0x7632),
                             __byte_perm(high01, high23, 0x5410),
                             __byte_perm(high01, high23, 0x7632)};
#pragma unroll
    for (int j = 0; j < 4; ++j)
      *reinterpret_cast<unsigned*>(tile + Tile::offset(line + j, k)) = out[j];
  }
}

template <typename E, Layout LAYOUT, int WIDTH, int DEPTH, int THREADS>
struct DenseTileCpAsync {
  static constexpr int SIZE = sizeof(E), VECTOR = 16 / SIZE;
  static constexpr bool BY_LINE = LAYOUT != Layout::rows;
  typedef OperandTile<E, WIDTH, DEPTH, BY_LINE> Tile;

  const E* panel;  // dense, at the tile's first column
  long long row, col;
  int columns;  // of the tile

  // The distance from a row of dense to the one `rows` later.
  __device__ __forceinline__ long long down(long long rows) const {
    return LAYOUT == Layout::columns ? rows : rows * row;
  }

  // Term y + c meets the row of dense that row_at(y, c) points to; c is a compile-time constant.
  // There are `terms` terms, at least one. The tile has zeros behind them, where row_at may return
  // anything. In Layout::columns the rows of a vector follow each other.
  template <typename RowAt>
  __device__ __forceinline__ void load(unsigned char* slice, int terms, RowAt row_at) const {
    if constexpr (LAYOUT == Layout::rows) {
      share_copies<THREADS, WIDTH / VECTOR, DEPTH>([&](int vector, int y, int c) {
        const int n = vector * VECTOR, bytes = min(max(columns - n, 0) * SIZE, 16);
        cp_async_partial<16, false>(slice + Tile::offset(n, y + c), row_at(y, c) + n,
                                    y + c < terms ? bytes : 0);
      });
    } else if constexpr (LAYOUT == Layout::columns) {
      constexpr int VECTORS = DEPTH / VECTOR;
      const int first = threadIdx.x % VECTORS * VECTOR;
      const E* from = row_at(first, 0);
      const int there = first < terms ? columns : 0;
      share_copies<THREADS, VECTORS, WIDTH>([&](int, int y, int c) {
        cp_async<16>(slice + Tile::offset(y + c, first), from + y * col + c * col, y + c < there);
      });
    } else if constexpr (LAYOUT == Layout::bytes) {
      transpose_bytes<Tile, WIDTH, DEPTH, THREADS>(slice, [&](int k, int n) {
        return four_bytes(row_at(k, 0) + n, k < terms ? columns - n : 0);
      });
    } else {
      const bool by_column = row < col;
#pragma unroll 1
      for (int e = threadIdx.x; e < DEPTH * WIDTH; e += THREADS) {
        const int k = by_column ? e % DEPTH : e / WIDTH;
        const int n = by_column ? e / DEPTH : e % WIDTH;
        *reinterpret_cast<E*>(slice + Tile::offset(n, k)) =
            k < terms && n < columns ? row_at(k, 0)[n * col] : zero_of<E>();
      }
    }
  }
};

}  // namespace sparsegpu
