// Dropout of the weights that a warp of the tensor-core kernels of attention has of sixteen queries
// (fragments: ptx/mma.cuh, d).
#pragma once

#include "common/philox.cuh"
#include "ptx/or_if_le.cuh"

namespace sparsegpu {

// Drops weights of a tile, if Drops; of blocks of BlockK keys.
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

  // Which of a lane's weights of STRIPS strips are dropped: bit 4 j + i for weight i of strip j.
  template <int STRIPS, typename GetStrip>
  __device__ __forceinline__ unsigned find(GetStrip strip) const {
    static_assert(STRIPS <= 8, "a word has the bits of eight strips");
    unsigned mine = 0;
    if (!by_fours) {
#pragma unroll 1
      for (int j = 0; j < STRIPS; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto index =
              score.index(rows.query[i / 2], strip(j).key + threadIdx.x % 4 * 2 + i % 2);
          or_if_le(mine, 1u << (4 * j + i), philox_word(index, score.args.seed), score.dropped);
        }
      }
      return mine;
    }
#pragma unroll
    for (int j = 0; j < STRIPS; ++j) {
      const uint4 made = words(first + unsigned(strip(j).key) / 4 + threadIdx.x % 4 / 2);
      const unsigned of_keys[4] = {made.x, made.y, made.z, made.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) or_if_le(mine, 1u << (4 * j + i), of_keys[i], score.dropped);
    }
    constexpr unsigned FIRST_TWO = 0x33333333;  // keys of four
    const unsigned its = __shfl_xor_sync(~0u, mine, 1);
    return threadIdx.x % 2 ? (its >> 2 & FIRST_TWO) | (mine & ~FIRST_TWO)
                           : (mine & FIRST_TWO) | (its & FIRST_TWO) << 2;
  }

 public:
  __device__ __forceinline__ WarpDropout(const Rows& rows, const Score& score)
      : WarpDropout(
            rows, score,
            (threadIdx.x % 2 ? score.index(rows.query[1], 0) : score.index(rows.query[0], 0)) / 4) {
  }

  // Set the dropped ones of the weights of STRIPS strips to zero, from strip `begin` on. `strip(j)`
  // is a Strip (common/attention_tile.cuh); what is set of one that is not there means nothing.
  // AT_ONCE: strips whose words are made side by side, eight at most, as registers allow.
  template <int STRIPS, int AT_ONCE, typename A, int N, typename GetStrip>
  __device__ __forceinline__ void drop(A (&weights)[N], int begin, GetStrip strip) const {
    constexpr int EACH = STRIPS < AT_ONCE ? STRIPS : AT_ONCE;
    static_assert(STRIPS % EACH == 0, "as many each time");
#pragma unroll
    for (int j = begin; j < begin + STRIPS; j += EACH) {
      const unsigned dropped = find<EACH>([&](int i) { return strip(j + i); });
#pragma unroll
      for (int n = 0; n < 4 * EACH; ++n)
        if (dropped >> n & 1) weights[4 * j + n] = 0;
    }
  }
};

// Of one tile: what it needs stays in registers no longer than for this.
template <int BlockK, typename A, int N, typename Rows, typename Score, typename GetStrip>
__device__ __forceinline__ void drop_weights(A (&weights)[N], const Rows& rows, const Score& score,
                                             GetStrip strip) {
  const WarpDropout<true, BlockK, Rows, Score> dropout(rows, score);
  dropout.template drop<N / 4, 4>(weights, 0, strip);
}

}  // namespace sparsegpu
