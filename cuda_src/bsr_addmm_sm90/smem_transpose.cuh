// Transpose squares of bytes in place, in shared memory: row-major int8 becomes K-major, the only
// layout in which wgmma reads it.
//
// A square has Width = 64 or 128 rows of as many bytes, and keeps the swizzle of TMA for rows of
// Width bytes. It consists of units of 16 x 16 bytes. ldmatrix.trans distributes two neighbouring
// bytes of each row to the lanes by columns, byte permutations combine two such words into four
// rows of one column, and stmatrix stores them as rows of the transposed unit. Two units that are
// neighbours in a row are transposed at once, and are then neighbours in a column. A warp reads two
// rows of such pairs and the two that they are exchanged with, then writes all four. The order of
// the rows in ldmatrix and stmatrix is chosen so that they fall into different banks.
#pragma once

#include "ptx/bulk_tensor.cuh"
#include "ptx/ldmatrix.cuh"

namespace sparsegpu {

// The offsets and byte selectors of a lane, which are the same for every square.
template <int Width>
class SmemTranspose8 {
  static constexpr int PAIRS = Width / 32;  // of units, in a row of them
  static constexpr int BELOW = PAIRS * (PAIRS - 1) / 2;
  unsigned from, to;   // the lane's row of the first pair of units, for reading and for writing
  unsigned select[2];  // which bytes make its words

  // Four pairs of units that are exchanged: the row of units of each, and its number in
  // the row.
  struct FourPairs {
    int row[4], pair[4];
  };
  // Exchange number `number`: two pairs and their mirror images, or four pairs on the diagonal.
  static __device__ __forceinline__ constexpr FourPairs exchange(int number) {
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
  __device__ __forceinline__ SmemTranspose8() {
    const int lane = threadIdx.x % 32, half = lane / 8 % 2, r = lane % 8, second = lane / 16;
    from = swizzled_address<Width>(0, 4 * (r / 2) + 2 * (half ^ r / 4) + r % 2, 0) ^ second * 16;
    to = swizzled_address<Width>(0, second * 16 + 2 * r + (half ^ r / 4), 0);
    // A lane has four rows of two columns; its first word has rows 2 and 3 where lane % 4 > 1.
    const bool swapped = lane % 4 >= 2, odd = lane >= 16;
    const unsigned even_column = swapped ? 0x2064 : 0x6420, odd_column = swapped ? 0x3175 : 0x7531;
    select[0] = odd ? odd_column : even_column;
    select[1] = odd ? even_column : odd_column;
  }

  __device__ __forceinline__ void transpose(unsigned square) const {
    // Hoisting all addresses out of the loop over squares spills; recompute them.
    unsigned read = from, write = to;
    asm volatile("" : "+r"(read), "+r"(write));
#pragma unroll
    for (int b = 0; b < BELOW + PAIRS / 2; ++b) {
      const FourPairs units = exchange(b);
      unsigned words[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ldmatrix_x4_trans(words[i],
                          square + units.row[i] * 16 * Width + (read ^ units.pair[i] * 32));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned transposed[4] = {__byte_perm(words[i][0], words[i][1], select[0]),
                                        __byte_perm(words[i][0], words[i][1], select[1]),
                                        __byte_perm(words[i][2], words[i][3], select[0]),
                                        __byte_perm(words[i][2], words[i][3], select[1])};
        stmatrix_x4(square + units.pair[i] * 32 * Width + (write ^ units.row[i] * 16), transposed);
      }
    }
  }
};

}  // namespace sparsegpu
