// Squares of bytes in shared memory transposed where they lie: row-major int8 becomes K-major, the
// only way in which wgmma takes it.
//
// A square has WIDTH = 64 or 128 rows of as many bytes, swizzled as the copy engine's swizzle of
// WIDTH has them, before and after. It consists of units of 16 x 16 bytes. ldmatrix.trans hands
// pairs of a row's bytes to the lanes by columns, byte permutations make words of four rows out of
// two of them, and stmatrix writes these as rows of the transposed unit: two units beside each
// other at a time, which come to lie below each other. A warp reads two rows of such pairs and
// those that they change places with, then writes all four. Which rows each matrix of ldmatrix and
// stmatrix has is chosen so that they lie in different banks.
#pragma once

#include "ptx/bulk_tensor.cuh"
#include "ptx/ldmatrix.cuh"

namespace sparsegpu {

// The address of row r, byte x of a matrix of rows of WIDTH bytes that the copy engine swizzled.
template <int WIDTH>
__device__ __forceinline__ unsigned swizzled(unsigned matrix, int r, int x) {
  const unsigned offset = r * WIDTH + x;
  return matrix + (offset ^ (offset >> 3 & (WIDTH - 16)));
}

// What each lane of a warp needs to know to turn squares.
template <int WIDTH>
class Turner {
  static constexpr int PAIRS = WIDTH / 32;  // of units, beside each other
  static constexpr int BELOW = PAIRS * (PAIRS - 1) / 2;
  unsigned from, to;   // the lane's row of the first two units, as it is read and as it is written
  unsigned select[2];  // bytes of the words that it writes

  // Four pairs of units: the row of units that each is in, and its number in the row.
  struct Four {
    int row[4], pair[4];
  };
  // Number `number` of them: two and their mirrors, or two and two on the diagonal.
  static __device__ __forceinline__ constexpr Four four(int number) {
    if (number >= BELOW) {
      const int i = 2 * (number - BELOW);
      return {{2 * i, 2 * i + 1, 2 * i + 2, 2 * i + 3}, {i, i, i + 1, i + 1}};
    }
    int i = 0;
    while (number >= PAIRS - 1 - i) number -= PAIRS - 1 - i++;
    const int j = i + 1 + number;
    return {{2 * i, 2 * i + 1, 2 * j, 2 * j + 1}, {j, j, i, i}};
  }

 public:
  __device__ __forceinline__ Turner() {
    const int lane = threadIdx.x % 32, half = lane / 8 % 2, r = lane % 8, second = lane / 16;
    from = swizzled<WIDTH>(0, 4 * (r / 2) + 2 * (half ^ r / 4) + r % 2, 0) ^ second * 16;
    to = swizzled<WIDTH>(0, second * 16 + 2 * r + (half ^ r / 4), 0);
    // A lane has four rows of two columns; its first word is of rows 2 and 3 where lane % 4 > 1.
    const bool swapped = lane % 4 >= 2, odd = lane >= 16;
    const unsigned even_column = swapped ? 0x2064 : 0x6420, odd_column = swapped ? 0x3175 : 0x7531;
    select[0] = odd ? odd_column : even_column;
    select[1] = odd ? even_column : odd_column;
  }

  __device__ __forceinline__ void turn(unsigned square) const {
    // The compiler would keep all places in registers from square to square, and has not so many.
    unsigned read = from, write = to;
    asm volatile("" : "+r"(read), "+r"(write));
#pragma unroll
    for (int b = 0; b < BELOW + PAIRS / 2; ++b) {
      const Four units = four(b);
      unsigned words[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ldmatrix_x4_trans(words[i],
                          square + units.row[i] * 16 * WIDTH + (read ^ units.pair[i] * 32));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned turned[4] = {__byte_perm(words[i][0], words[i][1], select[0]),
                                    __byte_perm(words[i][0], words[i][1], select[1]),
                                    __byte_perm(words[i][2], words[i][3], select[0]),
                                    __byte_perm(words[i][2], words[i][3], select[1])};
        stmatrix_x4(square + units.pair[i] * 32 * WIDTH + (write ^ units.row[i] * 16), turned);
      }
    }
  }
};

}  // namespace sparsegpu
