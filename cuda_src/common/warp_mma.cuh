// What the tensor-core products share: swizzled operand tiles in shared memory, the fragments that
// a warp loads from them, and its outputs.
//
// Counted in bytes of k the fragments of all dtypes are the same (ptx/mma.cuh, ptx/mma_sp.cuh), so
// k is counted in vectors of 16 bytes here.
#pragma once

#include "common/types.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"

namespace sparsegpu {

constexpr bool is_power_of_two(int n) {
  return (n & (n - 1)) == 0;
}

// Lines of VECTORS vectors of 16 bytes, arranged so that the eight rows of an ldmatrix are in
// different banks. Where VECTORS is a power of two, lines are swizzled: the vectors of 128 bytes
// are permuted by an XOR with the number of the line (the tile must begin in the first bank). Other
// lines are padded to an odd number of vectors, which costs copies time: those that straddle two
// rows of the banks were measured to take a cycle for every 32 bytes.
//
// ATOM vectors stay neighbours: two where a warp reads 32 bytes of each of four lines.
template <int VECTORS, int ATOM = 1>
struct SwizzledTile {
  static constexpr bool SWIZZLED = is_power_of_two(VECTORS);
  static constexpr int PITCH = (SWIZZLED ? VECTORS : VECTORS | 1) * 16;
  static constexpr int PERIOD = VECTORS < 8 ? VECTORS : 8;
  static_assert(SWIZZLED || ATOM == 1, "other lines are in order");

  // The offset of a vector of a line.
  static __device__ __forceinline__ unsigned offset(int line, int vector) {
    const int mask = line / (8 / PERIOD) % (PERIOD / ATOM) * ATOM;
    return line * PITCH + (SWIZZLED ? vector ^ mask : vector) * 16;
  }
  // The offset of the vector that is `lines` (a multiple of 8 / ATOM) and `vectors` further on than
  // the one at `from`; none of the bits of these numbers are set in those of the first one.
  static __device__ __forceinline__ unsigned advance(unsigned from, int lines, int vectors) {
    return (SWIZZLED ? (from + vectors / 8 * 128) ^ vectors % 8 * 16 : from + vectors * 16) +
           lines * PITCH;
  }
};

// An operand tile has LINES lines (rows of the left operand, columns of the right one) and a depth,
// DEPTH terms of k. It is stored in one of two ways, whichever is how the operand lies in global
// memory: by line, where a line's k are contiguous, or by k (not 8-bit types), where the lines'
// values for one k are.
template <typename E, int LINES, int DEPTH, bool LINE_BY_LINE>
struct OperandTile {
  typedef E Element;
  static constexpr int SIZE = sizeof(E);
  static constexpr bool BY_LINE = LINE_BY_LINE;
  static_assert(BY_LINE || SIZE != 1, "8-bit tiles are stored by line");
  // A fragment of TF32 that is stored by k is read as four times eight words.
  typedef SwizzledTile<(BY_LINE ? DEPTH : LINES) * SIZE / 16, !BY_LINE && SIZE == 4 ? 2 : 1> Order;
  static constexpr int BYTES = (BY_LINE ? LINES : DEPTH) * Order::PITCH;
  static_assert(Order::SWIZZLED && BYTES % 128 == 0, "the next tile begins in the first bank, too");

  // The offset of a line's value for one k, in bytes from the tile on.
  static __device__ __forceinline__ unsigned offset(int line, int k) {
    const int along = (BY_LINE ? k : line) * SIZE;
    return Order::offset(BY_LINE ? line : k, along / 16) + along % 16;
  }
};

// Word r of a fragment covers eight lines from line(r) on, and the 16 bytes of k of vector(r).
struct SixteenRows {  // a: 16 rows, 32 bytes of k
  static __device__ constexpr int line(int r) { return r % 2 * 8; }
  static __device__ constexpr int vector(int r) { return r / 2; }
};
struct SixteenColumns {  // b of two products, one below the other: 16 columns, 32 bytes of k
  static __device__ constexpr int line(int r) { return r / 2 * 8; }
  static __device__ constexpr int vector(int r) { return r % 2; }
};
struct EightColumns {  // b of an mma.sp: 8 columns, 64 bytes of k
  static __device__ constexpr int line(int) { return 0; }
  static __device__ constexpr int vector(int r) { return r; }
};

// Loads fragments from a tile. What depends on the lane is computed once.
template <typename Tile, typename Fragment>
struct FragmentLoader {
  static constexpr int SIZE = Tile::SIZE;
  unsigned address;

  __device__ __forceinline__ FragmentLoader(const unsigned char* tile, int first_line) {
    const int lane = threadIdx.x % 32;
    const int r = lane / 8;  // the matrix whose row addresses this lane gives to ldmatrix
    const int line = first_line + Fragment::line(r), k = Fragment::vector(r) * (16 / SIZE);
    address = shared_address(tile) + (Tile::BY_LINE ? Tile::offset(line + lane % 8, k)
                                      : SIZE == 2 ? Tile::offset(line, k + lane % 8)
                                                  : Tile::offset(first_line + lane / 4, lane % 4));
  }

  // The fragment that starts `line` lines and `vector` 16-byte vectors of k further on; `line` is
  // less than what the warp's lines are a multiple of. float32 becomes TF32 by rounding, where the
  // tensor cores would truncate.
  __device__ __forceinline__ void load(unsigned (&words)[4], int line, int vector) const {
    if constexpr (Tile::BY_LINE) {
      ldmatrix_x4(words, Tile::Order::advance(address, line, vector));
    } else if constexpr (SIZE == 2) {
      ldmatrix_x4_trans(words, Tile::Order::advance(address, vector * 8, line / 8));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = shared_word(Tile::Order::advance(address, (vector + Fragment::vector(i)) * 4,
                                                    (line + Fragment::line(i)) / 4));
    }
    if constexpr (SIZE == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = to_tf32(__uint_as_float(words[i]));
    }
  }
};

// The HEIGHT x WIDTH outputs of one warp, as the mma's d fragments (ptx/mma.cuh); ACROSS warps
// share the columns of the tile.
template <typename A, int HEIGHT, int WIDTH, int ACROSS>
struct WarpOutputs {
  A sum[HEIGHT / 16][WIDTH / 8][4] = {};
  int lane, row, col;  // row and col: where the warp's part starts in the tile

  __device__ __forceinline__ WarpOutputs() {
    const int warp = threadIdx.x / 32;
    lane = threadIdx.x % 32;
    row = warp / ACROSS * HEIGHT;
    col = warp % ACROSS * WIDTH;
  }

  // Call put(m, n, sum) for this lane's outputs in the warp's rows 16 i .. 16 i + 15; m counts
  // from the first of these, n from `col`.
  template <typename Put>
  __device__ __forceinline__ void sixteen_rows(int i, Put put) const {
#pragma unroll
    for (int j = 0; j < WIDTH / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        put(lane / 4 + r / 2 * 8, 8 * j + lane % 4 * 2 + r % 2, sum[i][j][r]);
  }
};

// Add the products of a slice of 64 bytes of k, in two steps of 32. TF32 that is stored by k needs
// the addresses of many words: unrolling both steps would spill.
template <typename Left, typename Right, typename A, int HEIGHT, int WIDTH, int ACROSS>
__device__ __forceinline__ void multiply_slice(WarpOutputs<A, HEIGHT, WIDTH, ACROSS>& outputs,
                                               const unsigned char* left,
                                               const unsigned char* right) {
  typedef typename Left::Element E;
  const FragmentLoader<Left, SixteenRows> rows(left, outputs.row);
  const FragmentLoader<Right, SixteenColumns> columns(right, outputs.col);
#pragma unroll(Left::SIZE == 4 && !Left::BY_LINE ? 1 : 2)
  for (int step = 0; step < 2; ++step) {
    unsigned a[HEIGHT / 16][4];
#pragma unroll
    for (int i = 0; i < HEIGHT / 16; ++i) rows.load(a[i], 16 * i, 2 * step);
#pragma unroll
    for (int j = 0; j < WIDTH / 16; ++j) {
      unsigned b[4];
      columns.load(b, 16 * j, 2 * step);
      const unsigned first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
#pragma unroll
      for (int i = 0; i < HEIGHT / 16; ++i) {
        mma<E>(outputs.sum[i][2 * j], a[i], first);
        mma<E>(outputs.sum[i][2 * j + 1], a[i], second);
      }
    }
  }
}

}  // namespace sparsegpu
