// Dropout of the weights that a warp of the tensor-core kernels of attention has of sixteen queries
// (fragments: ptx/mma.cuh, d).
#pragma once

#include "common/philox.cuh"

namespace sparsegpu {

// Which weights of a tile are dropped, if Drops; of blocks of BlockK keys.
//
// Four neighbouring keys have the words of one counter (common/philox.cuh), and two neighbouring
// lanes two of them each, for two rows: one lane makes the words of the first row, the other one
// those of the second. They exchange what follows from these, a bit for each weight.
template <bool Drops, int BlockK, typename Rows, typename Score>
class WarpDropout {
  const Rows& rows;
  const Score& score;
  bool by_fours;   // whether all keys share words by fours
  unsigned first;  // the low half of the counter of key 0, in the row whose words the lane makes
  PhiloxCounters words;

  __device__ __forceinline__ WarpDropout(const Rows& rows, const Score& score,
                                         unsigned long long counter)
      : rows(rows),
        score(score),
        by_fours(Drops && BlockK % 4 == 0 && score.args.keys % 4 == 0),
        first(unsigned(counter)),
        words(unsigned(counter >> 32), score.args.seed) {
    const unsigned last = first + unsigned(score.args.keys / 4);
    if (by_fours) by_fours = __all_sync(~0u, last >= first);  // of the same high half
  }

  template <int STRIPS, typename GetStrip>
  __device__ __forceinline__ unsigned find_by_fours(GetStrip strip) const {
    // Some counters side by side, whose rounds are chains, and a loop over these: all of them
    // unrolled are more instructions than the caches hold.
    constexpr int TOGETHER = STRIPS < 4 ? STRIPS : 4;
    static_assert(STRIPS % TOGETHER == 0, "as many each time");
    unsigned mine = 0;
#pragma unroll 1
    for (int j = 0; j < STRIPS; j += TOGETHER) {
      unsigned bits = 0;
#pragma unroll
      for (int k = 0; k < TOGETHER; ++k) {
        const uint4 made = words(first + unsigned(strip(j + k).key) / 4 + threadIdx.x % 4 / 2);
        const unsigned of_keys[4] = {made.x, made.y, made.z, made.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) bits |= unsigned(of_keys[i] <= score.dropped) << (4 * k + i);
      }
      mine = mine >> 4 * TOGETHER | bits << (32 - 4 * TOGETHER);
    }
    constexpr unsigned FIRST_TWO = 0x33333333;  // keys of four
    const unsigned its = __shfl_xor_sync(~0u, mine, 1);
    return threadIdx.x % 2 ? (its >> 2 & FIRST_TWO) | (mine & ~FIRST_TWO)
                           : (mine & FIRST_TWO) | (its & FIRST_TWO) << 2;
  }
  template <int STRIPS, typename GetStrip>
  __device__ __forceinline__ unsigned find_one_by_one(GetStrip strip) const {
    unsigned mine = 0;
#pragma unroll 1
    for (int n = 0; n < 4 * STRIPS; ++n) {
      const int key = strip(n / 4).key + threadIdx.x % 4 * 2 + n % 2;
      const auto index = score.index(n & 2 ? rows.query[1] : rows.query[0], key);
      const unsigned word = philox_word(index, score.args.seed);
      mine = mine >> 1 | unsigned(word <= score.dropped) << 31;
    }
    return mine;
  }

 public:
  __device__ __forceinline__ WarpDropout(const Rows& rows, const Score& score)
      : WarpDropout(rows, score,
                    score.index(threadIdx.x % 2 ? rows.query[1] : rows.query[0], 0) / 4) {}

  // Find the dropped weights of STRIPS strips from `begin` on, without the weights: bit n % 32 of
  // dropped[n / 32] for weight n. `strip(j)` is a Strip (common/attention_tile.cuh).
  template <int STRIPS, int N, typename GetStrip>
  __device__ __forceinline__ void find(unsigned (&dropped)[N], int begin, GetStrip strip) const {
    constexpr int EACH = STRIPS < 8 ? STRIPS : 8, BITS = 4 * EACH;
    static_assert(STRIPS % EACH == 0 && 32 % BITS == 0, "a word has the bits of eight strips");
#pragma unroll
    for (int j = begin; j < begin + STRIPS; j += EACH) {
      auto here = [&](int i) { return strip(j + i); };
      unsigned bits = by_fours ? find_by_fours<EACH>(here) : find_one_by_one<EACH>(here);
      bits >>= 32 - BITS;
      dropped[j / 8] = j % 8 ? dropped[j / 8] | bits << j % 8 * 4 : bits;
    }
  }
};

// Set the dropped ones of the weights `begin` .. `end` - 1 to zero.
template <typename A, int M, int N>
__device__ __forceinline__ void drop_weights(A (&weights)[M], const unsigned (&dropped)[N],
                                             int begin = 0, int end = M) {
#pragma unroll
  for (int n = begin; n < end; ++n)
    if (dropped[n / 32] >> n % 32 & 1) weights[n] = 0;
}

}  // namespace sparsegpu
