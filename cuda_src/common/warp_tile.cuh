// What the tensor-core products share: operand tiles in shared memory, the fragments that a warp
// takes out of them, and its outputs.
//
// An operand tile has lines (rows of the left operand, columns of the right one) and a depth, k.
// It is kept in one of two ways, whichever is how the operand lies in global memory:
//
//   by line   a line's k are contiguous; lines are LINE_PITCH<bytes of k> bytes apart
//   by k      the lines' values for one k are contiguous; K_PITCH<T, lines> bytes apart (no 8-bit)
//
// Both pitches keep the eight rows of an ldmatrix, and the 4 x 8 words of a TF32 fragment, in
// different banks. Counted in bytes of k the fragments of all dtypes are the same (ptx/mma.cuh,
// ptx/mma_sp.cuh), so k goes in pieces of 16 bytes here.
#pragma once

#include "common/types.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"

// How a matrix operand lies in global memory: 16-byte pieces of its rows or of its columns may be
// copied as they are, 4-byte pieces of 8-bit rows, or nothing is known.
enum class Layout { rows, columns, bytes, strided };

template <int K_BYTES>
constexpr int LINE_PITCH = K_BYTES + 16;
template <typename T, int LINES>
constexpr int K_PITCH = LINES * int(sizeof(T)) + (sizeof(T) == 4 ? 32 : 16);

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

// A tile as a lane reads fragments from it. What depends on the lane is computed once; the steps
// from one fragment to the next are constants of the instructions.
template <typename T, typename Fragment, bool BY_LINE, int PITCH>
struct Fragments {
  static constexpr int SIZE = sizeof(T);
  static_assert(BY_LINE || SIZE != 1, "8-bit tiles are kept by line");
  const unsigned char* at;

  __device__ __forceinline__ Fragments(const unsigned char* tile, int first_line) {
    const int lane = threadIdx.x % 32;
    const int r = lane / 8;  // the matrix whose row addresses this lane gives to ldmatrix
    if constexpr (BY_LINE)
      at = tile + (first_line + Fragment::line(r) + lane % 8) * PITCH + Fragment::piece(r) * 16;
    else if constexpr (SIZE == 2)
      at =
          tile + (Fragment::piece(r) * 8 + lane % 8) * PITCH + (first_line + Fragment::line(r)) * 2;
    else
      at = tile + lane % 4 * PITCH + (first_line + lane / 4) * 4;
  }

  // The fragment that starts `line` lines and `piece` 16-byte pieces of k further on. float32
  // becomes TF32 by rounding, where the tensor cores would cut off.
  __device__ __forceinline__ void load(unsigned (&words)[4], int line, int piece) const {
    if constexpr (BY_LINE) {
      ldmatrix_x4(words, at + (line * PITCH + piece * 16));
    } else if constexpr (SIZE == 2) {
      ldmatrix_x4_trans(words, at + (piece * 8 * PITCH + line * 2));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = *reinterpret_cast<const unsigned*>(
            at + ((piece + Fragment::piece(i)) * 4 * PITCH + (line + Fragment::line(i)) * 4));
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

// Call copy(x, y) for a thread's share of WIDTH x HEIGHT copies to a tile: neighbouring threads
// take neighbouring x, and each thread has one x.
template <int THREADS, int WIDTH, int HEIGHT, typename Copy>
__device__ __forceinline__ void share_copies(Copy copy) {
  constexpr int DOWN = THREADS / WIDTH;
  static_assert(THREADS % WIDTH == 0, "whole rows of threads");
  const int x = threadIdx.x % WIDTH, y = threadIdx.x / WIDTH;
#pragma unroll
  for (int i = 0; i < HEIGHT; i += DOWN)
    if (HEIGHT % DOWN == 0 || y + i < HEIGHT) copy(x, y + i);
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
// values for one k. A thread transposes squares of 4 x 4 bytes; a warp takes SQUARES of them side
// by side (fewer where the tile ends) and so reads 4 * SQUARES contiguous bytes of each k.
template <int LINES, int DEPTH, int SQUARES, int THREADS, int PITCH, typename Word>
__device__ __forceinline__ void transpose_bytes(unsigned char* tile, Word word) {
  constexpr int ACROSS = LINES / 4 < SQUARES ? LINES / 4 : SQUARES, DOWN = 32 / ACROSS;
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
      *reinterpret_cast<unsigned*>(tile + (line + j) * PITCH + k) = out[j];
  }
}
