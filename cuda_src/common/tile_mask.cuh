// The mask of a tile of scores: which are attended, and what is added to them.
//
// Of a bool mask there are states of blocks and, of those that are partly True, a bit an element:
// column j of row i of block p is bit j % 32 of word (p * BlockM + i) * WORDS + j / 32. A mask that
// is added is read element by element.
#pragma once

#include "common/ceil_div.cuh"
#include "common/kernel_score.cuh"
#include "common/query_tile.cuh"

namespace sparsegpu {

template <typename Element, int BlockM, int BlockK, typename Score>
struct TileMask {
  static constexpr bool ADDED = true;
  Score score;
  long long first_block;  // of the matrix of the pattern

  __device__ __forceinline__ TileMask(const Score& score, const unsigned*, long long first_block)
      : score(score), first_block(first_block) {}

  // Call set(i, attended) for columns `column` + i of row `row` of the block of a state, i below
  // COUNT; what is added to their scores x[i] is added first.
  template <typename A, int COUNT>
  __device__ __forceinline__ void row(long long state, int row, int column, bool (&attended)[COUNT],
                                      A (&x)[COUNT]) const {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      attended[i] = state >= 0 && column + i < BlockK &&
                    score.masked(x[i], state - first_block, row * BlockK + column + i);
  }
  // The same of columns `lane` + i of a strip, eight columns from `column` on.
  template <typename A, int COUNT>
  __device__ __forceinline__ void strip(long long state, int row, int column, int lane,
                                        bool (&attended)[COUNT], A (&x)[COUNT]) const {
    this->row(state, row, column + lane, attended, x);
  }
};

template <int BlockM, int BlockK, typename Score>
struct TileMask<b8, BlockM, BlockK, Score> {
  static constexpr bool ADDED = false;
  static constexpr int WORDS = ceil_div(BlockK, 32);
  const unsigned* bits;

  __device__ __forceinline__ TileMask(const Score&, const unsigned* bits, long long) : bits(bits) {}

  // The COUNT columns are within one word.
  template <typename A, int COUNT>
  __device__ __forceinline__ void row(long long state, int row, int column, bool (&attended)[COUNT],
                                      A (&)[COUNT]) const {
    unsigned word = state == ALL_TRUE ? ~0u : 0u;
    if (state >= 0) word = bits[(state * BlockM + row) * WORDS + column / 32] >> column % 32;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) attended[i] = word >> i & 1 && column + i < BlockK;
  }
  // Strips of a row share words, which are read once where the compiler sees `column`.
  template <typename A, int COUNT>
  __device__ __forceinline__ void strip(long long state, int row, int column, int lane,
                                        bool (&attended)[COUNT], A (&)[COUNT]) const {
    // Without a sign the division by 32 folds, and no register holds the row's upper half.
    const unsigned first = column, of_block = row;
    unsigned word = state == ALL_TRUE ? ~0u : 0u;
    if (state >= 0)
      word = bits[(state * BlockM + of_block) * WORDS + first / 32] >> (first % 32 + lane);
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      attended[i] = word >> i & 1 && (BlockK % 8 == 0 || column + lane + i < BlockK);
  }
};

}  // namespace sparsegpu
