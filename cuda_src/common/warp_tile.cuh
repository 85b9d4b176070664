// What the tensor-core products share: operand tiles in shared memory, the fragments that a warp
// takes out of them, and its outputs.
//
// Counted in bytes of k the fragments of all dtypes are the same (ptx/mma.cuh, ptx/mma_sp.cuh), so
// k goes in pieces of 16 bytes here.
#pragma once

#include "common/lines.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"

namespace sparsegpu {

// An operand tile has LINES lines (rows of the left operand, columns of the right one) and a depth,
// DEPTH terms of k. It is kept in one of two ways, whichever is how the operand lies in global
// memory: by line, where a line's k are contiguous, or by k (no 8-bit), where the lines' values for
// one k are.
template <typename T, int LINES, int DEPTH, bool LINE_BY_LINE>
struct OperandTile {
  static constexpr int SIZE = sizeof(T);
  static constexpr bool BY_LINE = LINE_BY_LINE;
  static_assert(BY_LINE || SIZE != 1, "8-bit tiles are kept by line");
  // A fragment of TF32 that is kept by k is read as four times eight words.
  typedef Lines<(BY_LINE ? DEPTH : LINES) * SIZE / 16, !BY_LINE && SIZE == 4 ? 2 : 1> Order;
  static constexpr int BYTES = (BY_LINE ? LINES : DEPTH) * Order::PITCH;
  static_assert(Order::TURNED && BYTES % 128 == 0, "the next tile begins in the first bank, too");

  // Where the value of a line for one k is, in bytes from the tile on.
  static __device__ __forceinline__ unsigned place(int line, int k) {
    const int along = (BY_LINE ? k : line) * SIZE;
    return Order::place(BY_LINE ? line : k, along / 16) + along % 16;
  }
};

// Word r of a fragment covers eight lines from line(r) on, and 16 bytes of k: piece(r).
struct SixteenRows {  // a: 16 rows, 32 bytes of k
  static __device__ constexpr int line(int r) { return r % 2 * 8; }
  static __device__ constexpr int piece(int r) { return r / 2; }
};
struct SixteenColumns {  // b of two products, one below the other: 16 columns, 32 bytes of k
  static __device__ constexpr int line(int r) { return r / 2 * 8; }
  static __device__ constexpr int piece(int r) { return r % 2; }
};
struct EightColumns {  // b of an mma.sp: 8 columns, 64 bytes of k
  static __device__ constexpr int line(int) { return 0; }
  static __device__ constexpr int piece(int r) { return r; }
};

// A tile as a lane reads fragments from it. What depends on the lane is computed once.
template <typename T, typename Tile, typename Fragment>
struct Fragments {
  static constexpr int SIZE = sizeof(T);
  unsigned at;

  __device__ __forceinline__ Fragments(const unsigned char* tile, int first_line) {
    const int lane = threadIdx.x % 32;
    const int r = lane / 8;  // the matrix whose row addresses this lane gives to ldmatrix
    const int line = first_line + Fragment::line(r), k = Fragment::piece(r) * (16 / SIZE);
    at = shared_address(tile) + (Tile::BY_LINE ? Tile::place(line + lane % 8, k)
                                 : SIZE == 2   ? Tile::place(line, k + lane % 8)
                                               : Tile::place(first_line + lane / 4, lane % 4));
  }

  // The fragment that starts `line` lines and `piece` 16-byte pieces of k further on; `line` is
  // less than what the warp's lines are a multiple of. float32 becomes TF32 by rounding, where the
  // tensor cores would cut off.
  __device__ __forceinline__ void load(unsigned (&words)[4], int line, int piece) const {
    if constexpr (Tile::BY_LINE) {
      ldmatrix_x4(words, Tile::Order::later(at, line, piece));
    } else if constexpr (SIZE == 2) {
      ldmatrix_x4_trans(words, Tile::Order::later(at, piece * 8, line / 8));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = shared_word(Tile::Order::later(at, (piece + Fragment::piece(i)) * 4,
                                                  (line + Fragment::line(i)) / 4));
    }
    if constexpr (SIZE == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = to_tf32(__uint_as_float(words[i]));
    }
  }
};

// The ROWS x COLUMNS outputs of one warp, as the mma's d fragments (ptx/mma.cuh); ACROSS warps
// share the columns of the tile.
template <typename A, int ROWS, int COLUMNS, int ACROSS>
struct WarpTile {
  A sum[ROWS / 16][COLUMNS / 8][4];
  int lane, row, col;  // row and col: where the warp's part starts in the tile

  __device__ __forceinline__ WarpTile() {
    const int warp = threadIdx.x / 32;
    lane = threadIdx.x % 32;
    row = warp / ACROSS * ROWS;
    col = warp % ACROSS * COLUMNS;
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i)
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) sum[i][j][r] = A(0);
  }

  // Call put(m, n, sum) for this lane's outputs in the warp's rows 16 i .. 16 i + 15; m counts
  // from the first of these, n from `col`.
  template <typename Put>
  __device__ __forceinline__ void sixteen_rows(int i, Put put) const {
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        put(lane / 4 + r / 2 * 8, 8 * j + lane % 4 * 2 + r % 2, sum[i][j][r]);
  }
};

// Call copy(x, y, c) for a thread's share of WIDTH x HEIGHT copies to a tile, at x and y + c.
// Neighbouring threads take neighbouring x. Each thread has one x and one y, and c is known when
// the kernel is compiled: so most of a copy's addresses can be computed before a loop over slices.
template <int THREADS, int WIDTH, int HEIGHT, typename Copy>
__device__ __forceinline__ void share_copies(Copy copy) {
  constexpr int DOWN = THREADS / WIDTH;
  static_assert(THREADS % WIDTH == 0, "whole rows of threads");
  const int x = threadIdx.x % WIDTH, y = threadIdx.x / WIDTH;
#pragma unroll
  for (int i = 0; i < HEIGHT; i += DOWN)
    if (HEIGHT % DOWN == 0 || y + i < HEIGHT) copy(x, y, i);
}

// The first `count` of four bytes at an address aligned to 4, the others zero.
__device__ __forceinline__ unsigned four_bytes(const void* from, int count) {
  if (count >= 4) return *static_cast<const unsigned*>(from);
  unsigned word = 0;
  for (int i = 0; i < count; ++i)
    word |= unsigned(static_cast<const unsigned char*>(from)[i]) << (8 * i);
  return word;
}

// Fill a tile kept by line with an 8-bit operand that lies by k: word(k, line) gives four lines'
// values for one k. A thread transposes squares of 4 x 4 bytes; a warp takes eight of them side
// by side (fewer where the tile ends) and so reads 32 contiguous bytes of each k.
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
      *reinterpret_cast<unsigned*>(tile + Tile::place(line + j, k)) = out[j];
  }
}

}  // namespace sparsegpu
