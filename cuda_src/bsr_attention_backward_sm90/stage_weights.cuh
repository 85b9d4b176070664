// What a warpgroup does with the accumulators of a stage in the gradients of attention: scores
// become weights, and gradients of weights become gradients of scores. Both leave as left operands
// of wgmma.
#pragma once

#include "common/attention_gradients.cuh"
#include "common/ceil_div.cuh"
#include "ptx/opaque.cuh"

namespace sparsegpu {

// The power of two that a query's weights are relative to, 0 where nothing is attended.
__device__ __forceinline__ float base_of(float lse) {
  return lse == minus_infinity<float>() ? 0.0f : lse * LOG2_E;
}

// As transpose_across_lanes (common/warp_reduce.cuh), for four lanes that are Stride apart.
template <int Stride>
__device__ __forceinline__ void transpose_across_lanes(unsigned (&words)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {  // swap this bit of the numbers of word and lane
    const bool high = threadIdx.x / Stride & bit;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const unsigned got = __shfl_xor_sync(~0u, high ? words[i] : words[i | bit], Stride * bit);
      (high ? words[i] : words[i | bit]) = got;
    }
  }
}

// The words of dropout for a lane's four weights of a strip that begins with key `first`, where
// keys share words by fours.
//
// Four neighbouring keys have the words of one counter (common/philox.cuh), and two neighbouring
// lanes two of them each, for two rows: one lane makes the words of the first row, the other one
// those of the second.
template <typename Rows, typename Score>
__device__ __forceinline__ void strip_words(unsigned (&of_weights)[4], const Rows& rows,
                                            const Score& score, int first) {
  const int t = threadIdx.x % 4;
  const bool odd = t % 2;
  const int key = first + t / 2 * 4;
  const unsigned long long of_rows[2] = {score.index(rows.query[0], key),
                                         score.index(rows.query[1], key)};
  const uint4 words = philox4x32((odd ? of_rows[1] : of_rows[0]) / 4, score.args.seed);
  const unsigned x = __shfl_xor_sync(~0u, odd ? words.x : words.z, 1);
  const unsigned y = __shfl_xor_sync(~0u, odd ? words.y : words.w, 1);
  of_weights[0] = odd ? x : words.x;
  of_weights[1] = odd ? y : words.y;
  of_weights[2] = odd ? words.z : x;
  of_weights[3] = odd ? words.w : y;
}

// As strip_words, where a lane's rows are keys: the words of a strip
// that begins with query `first`. Own rows begin at multiples of four. Four lanes with four
// neighbouring keys need the same four counters: each makes one, and they transpose the words.
template <typename Rows, typename Score>
__device__ __forceinline__ void strip_words_of_keys(unsigned (&words)[4], const Rows& rows,
                                                    const Score& score, int first) {
  const int q = threadIdx.x / 4 % 4, query = first + threadIdx.x % 4 * 2 + q % 2;
  const int key = (q / 2 ? rows.query[1] : rows.query[0]) - q;
  const uint4 made = philox4x32(score.index(query, key) / 4, score.args.seed);
  words[0] = made.x;
  words[1] = made.y;
  words[2] = made.z;
  words[3] = made.w;
  transpose_across_lanes<4>(words);
}

// For Lines other rows of type E. Folded: scores are scaled accumulators; Capped: they have a
// softcap. `strip(j)` is a Strip of eight other rows; `base(i)` and `delta(i)` are those of the
// query of number i of an accumulator.
template <typename E, int Lines, bool ByQueries, int Other, bool Folded, bool Capped, bool Drops>
struct StageWeights {
  typedef Pairs<ByQueries, Other, Drops> OfPairs;
  typedef float Numbers[Lines / 2];
  typedef unsigned Fragments[Lines / 16][4];
  unsigned kept[ceil_div(Lines, 64)];  // what dropout keeps: a bit each

  // Whether everything is attended, in all rows of a warp.
  template <typename Rows, typename GetStrip>
  static __device__ __forceinline__ bool whole(const Rows& rows, bool causal, GetStrip strip) {
    bool all = true;
#pragma unroll
    for (int j = 0; j < Lines / 8; ++j) {
      const auto here = strip(j);
      const bool late = ByQueries ? here.key + 7 > rows.query[0] : here.key < rows.query[1];
      all &= here.state[0] == ALL_TRUE && here.state[1] == ALL_TRUE && !(causal && late);
    }
    return __all_sync(~0u, all);
  }

  // Turn accumulators into weights, 0 where they are not attended. Those that dropout keeps leave
  // as `fragments`; `scores` keeps the factor of (dweight - delta) in `differentiate`.
  template <bool Whole, typename Rows, typename Score, typename Mask, typename GetStrip,
            typename GetNumber>
  __device__ __forceinline__ void weigh(Numbers& scores, Fragments& fragments, const Rows& rows,
                                        const Score& score, const Mask& mask, GetStrip strip,
                                        GetNumber base) {
    const float unit = Folded ? score.args.scale * LOG2_E : LOG2_E;
    if constexpr (Drops)
      for (unsigned& bits : kept) bits = 0;
#pragma unroll
    for (int k = 0; k < Lines / 16; ++k) {
      float weights[8];
      unsigned words[4];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int i = 8 * k + n, r = i / 2 % 2, line = threadIdx.x % 4 * 2 + i % 2;
        const float acc = scores[i];
        float x = acc;
        bool attended = true, stays = true;
        if constexpr (!Whole || !Folded || Drops) {
          const auto here = strip(i / 4);
          const int own = rows.query[r], other = here.key + line;
          if constexpr (!Folded) x = OfPairs::score_of(score, acc, own, other);
          if constexpr (!Whole)
            attended = OfPairs::attends(score, mask, here.state[r], rows.row_in_block[r],
                                        here.column + line, own, other, x);
          if constexpr (Drops) {
            if (n % 4 == 0) {
              if constexpr (ByQueries)
                strip_words(words, rows, score, here.key);
              else
                strip_words_of_keys(words, rows, score, here.key);
            }
            stays = attended && words[n % 4] > score.dropped;
            kept[i / 32] |= unsigned(stays) << i % 32;
          }
        }
        const float weight = attended ? exp2_approx(fmaf(x, unit, -base(i))) : 0.0f;
        weights[n] = Drops ? (stays ? weight * score.args.kept_scale : 0.0f) : weight;
        scores[i] = Capped ? weight * score.bend(acc) : weight;
      }
      weight_fragment<E>(fragments[k], weights, 0);
#pragma unroll
      for (unsigned& pair : fragments[k]) pair = opaque(pair);  // one register, not two halves
    }
  }

  // The gradients of accumulators, from what `weigh` left and the gradients of kept weights.
  template <typename Score, typename GetNumber>
  __device__ __forceinline__ void differentiate(Fragments& fragments, const Numbers& scores,
                                                const Numbers& dweights, const Score& score,
                                                GetNumber delta) const {
#pragma unroll
    for (int k = 0; k < Lines / 16; ++k) {
      float dscores[8];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int i = 8 * k + n;
        float dweight = dweights[i];
        if constexpr (Drops)
          dweight = kept[i / 32] >> i % 32 & 1 ? dweight * score.args.kept_scale : 0.0f;
        dscores[n] = scores[i] * (dweight - delta(i));
      }
      weight_fragment<E>(fragments[k], dscores, 0);
    }
  }
};

}  // namespace sparsegpu
