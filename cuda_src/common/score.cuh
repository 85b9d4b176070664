// The only place where an accumulator of query and key becomes a weight: twin of
// sparsegpu/_score.py.
//
//     x      = scale * acc
//     x      = softcap * tanh(x / softcap)               if Capped
//     logit  = x + slope * (key - query) + mask          where the mask and causality attend
//     weight = exp(logit - lse) * kept_scale             where dropout keeps it, else 0
//
// A kernel takes its score from common/kernel_score.cuh. How exp(logit) is summed is its own.
#pragma once

#include "common/ceil_div.cuh"
#include "common/offset_of.cuh"
#include "common/philox.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

namespace sparsegpu {

// The mask of a block, of a bool mask that has bits of partial blocks only
// (sparsegpu/_block_bits.py).
constexpr int NOTHING = -1, EVERYTHING = -2;
template <typename Index>
struct BlockCode {
  Index code;  // or the number of the block's bits
};

// mask holds blocks as rows (block p, element i * bk + j; of a BlockCode one), slopes one number a
// matrix of the batch.
template <typename A>
struct ScoreArgs {
  View mask, slopes;
  long long queries, keys;
  unsigned long long seed;
  const unsigned* bits;  // of a BlockCode, with the sizes of a block
  int block_rows, block_columns;
  double dropout;  // the probability, 0: none
  A scale, softcap, kept_scale;
  int causal;
};
template <typename A>
constexpr bool packs_score_args() {  // a function, of which no kernel gets a variable
  return OFFSET_OF(ScoreArgs<A>, mask) == 0 && OFFSET_OF(ScoreArgs<A>, slopes) == 56 &&
         OFFSET_OF(ScoreArgs<A>, queries) == 112 && OFFSET_OF(ScoreArgs<A>, keys) == 120 &&
         OFFSET_OF(ScoreArgs<A>, seed) == 128 && OFFSET_OF(ScoreArgs<A>, bits) == 136 &&
         OFFSET_OF(ScoreArgs<A>, block_rows) == 144 &&
         OFFSET_OF(ScoreArgs<A>, block_columns) == 148 && OFFSET_OF(ScoreArgs<A>, dropout) == 152 &&
         OFFSET_OF(ScoreArgs<A>, scale) == 160 &&
         OFFSET_OF(ScoreArgs<A>, softcap) == 160 + sizeof(A) &&
         OFFSET_OF(ScoreArgs<A>, kept_scale) == 160 + 2 * sizeof(A) &&
         OFFSET_OF(ScoreArgs<A>, causal) == 160 + 3 * sizeof(A) &&
         sizeof(ScoreArgs<A>) ==
             160 + 4 * sizeof(A);  // behind an f64 kernel's last field is padding
}
static_assert(packs_score_args<f32>() && packs_score_args<f64>(), "_score_args.py packs this");

template <typename A>
__device__ __forceinline__ A minus_infinity() {
  return A(__int_as_float(0xff800000));
}

// What the mask says of a stored element: whether it is attended, and what is added to its score.
template <typename A>
__device__ __forceinline__ bool admits(b8 m, A&) {
  return m.bits != 0;
}
template <typename M, typename A>
__device__ __forceinline__ bool admits(M m, A& score) {
  const A x = A(to_acc(m));
  score += x;
  return x != minus_infinity<A>();
}

// Whether a mask's elements are those of blocks, read in their places.
template <typename Mask>
struct ByElement {
  static constexpr bool value = true;
};
template <typename Index>
struct ByElement<BlockCode<Index>> {
  static constexpr bool value = false;
};

// The scores of matrix b of the batch, which is head `number` of all (as dropout counts them).
template <typename A, typename Mask, bool Capped, bool Sloped>
struct ScoreOp {
  const ScoreArgs<A>& args;
  const Mask* masks;
  A slope;
  long long number;
  unsigned dropped;  // the highest word of Philox that drops a weight

  __device__ __forceinline__ ScoreOp(const ScoreArgs<A>& args, const Batch& batch, long long b,
                                     long long number)
      : ScoreOp(args, BatchIndex(batch, b), number) {}
  __device__ __forceinline__ ScoreOp(const ScoreArgs<A>& args, const BatchIndex& index,
                                     long long number)
      : args(args),
        masks(index.pointer<const Mask>(args.mask)),
        slope(0),
        number(number),
        dropped(highest_dropped(args.dropout)) {
    if constexpr (Sloped) slope = *index.pointer<const A>(args.slopes);
  }

  // Turn an accumulator into a score, without the mask.
  template <typename Int>
  __device__ __forceinline__ A score(A acc, Int query, Int key) const {
    A x = args.scale * acc;
    if constexpr (Capped) x = args.softcap * tanh(x / args.softcap);
    if constexpr (Sloped) x += slope * A(key - query);
    return x;
  }

  // Whether a key is not behind a query that must not see those.
  template <typename Int>
  __device__ __forceinline__ bool in_order(Int query, Int key) const {
    return !(args.causal && key > query);
  }

  // Add what the mask says of element `place` of stored block `block`; return whether it is
  // attended.
  __device__ __forceinline__ bool masked(A& x, long long block, int place) const {
    if constexpr (ByElement<Mask>::value) {
      return admits(masks[block * args.mask.row + place * args.mask.col], x);
    } else {
      const long long code = masks[block * args.mask.row].code;
      if (code < 0) return code == EVERYTHING;
      const int row = place / args.block_columns, column = place % args.block_columns;
      const int words = ceil_div(args.block_columns, 32);
      const unsigned word = args.bits[(code * args.block_rows + row) * words + column / 32];
      return word >> column % 32 & 1;
    }
  }

  // Turn an accumulator into a logit; return whether it is attended. `place` numbers the element
  // within stored block `block`; where nothing is stored, nothing is read.
  __device__ __forceinline__ bool logit(A& x, bool stored, long long query, long long key,
                                        long long block, int place) const {
    x = score(x, query, key);
    return stored && in_order(query, key) && masked(x, block, place);
  }

  // What a logit changes by with its accumulator: the scale times this.
  __device__ __forceinline__ A bend(A acc) const {
    if constexpr (!Capped) return A(1);
    // 1 - tanh(x)**2, which would cancel for large x
    const A x = acc * args.scale / args.softcap;
    const A z = exp(x < 0 ? A(2) * x : A(-2) * x);
    return A(4) * z / ((A(1) + z) * (A(1) + z));
  }
  __device__ __forceinline__ A derivative(A acc) const { return args.scale * bend(acc); }

  // Whether the weight of what is attended stays after dropout.
  __device__ __forceinline__ bool keeps(bool attended, long long query, long long key) const {
    if (attended && args.dropout > 0)
      attended = philox_word(index(query, key), args.seed) > dropped;
    return attended;
  }
  // The number of a score among those of all heads, as dropout counts them.
  __device__ __forceinline__ unsigned long long index(long long query, long long key) const {
    return (number * args.queries + query) * args.keys + key;
  }

  // What a pair of query and key gives to the gradients: its weight after dropout, 0 where it is
  // not kept, and the gradient of its logit, 0 where it is not attended.
  struct Pair {
    A weight, dlogit;
    bool attended, kept;
  };
  // `dweight` is the gradient of its kept weight, `delta` the query's sum of these times the
  // weights (less the gradient of lse).
  __device__ __forceinline__ Pair pair(A acc, A dweight, bool stored, long long query,
                                       long long key, long long block, int place, A lse,
                                       A delta) const {
    Pair pair;
    pair.attended = logit(acc, stored, query, key, block, place);
    pair.kept = keeps(pair.attended, query, key);
    const A weight = exp(acc - (lse == minus_infinity<A>() ? A(0) : lse));
    pair.weight = pair.kept ? weight * args.kept_scale : A(0);
    pair.dlogit =
        pair.attended ? (pair.kept ? pair.weight * dweight : A(0)) - weight * delta : A(0);
    return pair;
  }
};

}  // namespace sparsegpu
