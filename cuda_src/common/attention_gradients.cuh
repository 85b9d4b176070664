// What the kernels of attention's gradients share: operands as own and other rows, what a pair of
// rows gives, the store of a warp's rows (fragments: ptx/mma.cuh, d), and rows whose sums are not
// finite in plain code.
//
// A kernel takes rows of the operand that its gradient is of, the own ones, and walks those of the
// other side:
//
//                      ByQueries            else
//   own, other         queries, keys        keys, queries
//   left, other_left   query, key           key, query
//   right, other_right grad, value          value, grad
//
//   scores   = left @ other_left.T       weights  = exp(logit - lse)
//   dweights = right @ other_right.T     dscores  = weights * (dweights - delta)
//   first   += dscores @ other_left      the gradient of query, or of key
//   second  += weights @ other_right     the gradient of value
#pragma once

#include "common/attention_tile.cuh"

namespace sparsegpu {

// -DGRADIENT
enum class Gradient { query, key };

// What every head has.
struct GradientOperands {
  const View &query, &key, &value, &grad, &lse, &delta;
};

// One head: its operands as own and other ones, its numbers of queries.
template <typename E, bool ByQueries>
struct GradientHead {
  const E *left, *right, *other_left, *other_right;
  long long left_row, right_row, other_left_row, other_right_row;
  const float *lse, *delta;
  long long lse_row, delta_row;

  __device__ __forceinline__ GradientHead(const BatchIndex& at, const GradientOperands& of)
      : left(at.pointer<const E>(ByQueries ? of.query : of.key)),
        right(at.pointer<const E>(ByQueries ? of.grad : of.value)),
        other_left(at.pointer<const E>(ByQueries ? of.key : of.query)),
        other_right(at.pointer<const E>(ByQueries ? of.value : of.grad)),
        left_row(ByQueries ? of.query.row : of.key.row),
        right_row(ByQueries ? of.grad.row : of.value.row),
        other_left_row(ByQueries ? of.key.row : of.query.row),
        other_right_row(ByQueries ? of.value.row : of.grad.row),
        lse(at.pointer<const float>(of.lse)),
        delta(at.pointer<const float>(of.delta)),
        lse_row(of.lse.row),
        delta_row(of.delta.row) {}
};

// Pairs of an own and an other row of a block of Other such rows, with or without dropout.
template <bool ByQueries, int Other, bool Drops>
struct Pairs {
  // Turn an accumulator into a score, without the mask.
  template <typename Score>
  static __device__ __forceinline__ float score_of(const Score& score, float acc, int own,
                                                   int other) {
    return ByQueries ? score.score(acc, own, other) : score.score(acc, other, own);
  }

  // Whether the mask and causal order let own row `own` and other row `other` meet, which are `row`
  // and `column` of a block with this state. What the mask adds is added to x. The last strip of a
  // block may have rows beyond the block, for which the mask has no elements.
  template <typename Score, typename Mask>
  static __device__ __forceinline__ bool attends(const Score& score, const Mask& mask,
                                                 long long state, int row, int column, int own,
                                                 int other, float& x) {
    if (Other % 8 != 0 && column >= Other) return false;
    bool attended[1];
    float added[1] = {x};
    mask.row(state, ByQueries ? row : column, ByQueries ? column : row, attended, added);
    x = added[0];
    return attended[0] && score.in_order(ByQueries ? own : other, ByQueries ? other : own);
  }

  // What a pair gives: its weight after dropout, and the gradient of its accumulator, without the
  // factor `scale`.
  struct Given {
    float weight, dscore;
    bool kept;
  };
  template <typename Score>
  static __device__ __forceinline__ Given given(const Score& score, bool attended, float x,
                                                float bend, float dweight, int own, int other,
                                                float lse, float delta) {
    const int query = ByQueries ? own : other, key = ByQueries ? other : own;
    const float base = lse == minus_infinity<float>() ? 0.0f : lse;
    const float weight = exp2_approx((x - base) * LOG2_E);
    Given result;
    result.kept = attended && (!Drops || score.keeps(true, query, key));
    result.weight = result.kept ? weight * score.args.kept_scale : 0.0f;
    result.dscore =
        attended ? ((result.kept ? result.weight * dweight : 0.0f) - weight * delta) * bend : 0.0f;
    return result;
  }
};

// Store a warp's rows of a gradient, which is contiguous and has an even number of columns; return
// a bit for each row that is not finite.
template <typename E, int N, typename Tile>
__device__ __forceinline__ unsigned store_gradient(E* to, const View& gradient, int columns,
                                                   const float (&sums)[N], float scale,
                                                   const Tile& tile,
                                                   const LaneQueries<Tile>& rows) {
  const int lane = threadIdx.x % 32;
  unsigned again = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool here = rows.first + lane / 4 + 8 * r < tile.rows;
    E* const line = to + (long long)rows.query[r] * gradient.row;
    bool finite = true;
#pragma unroll
    for (int n = 0; n < N / 4; ++n) {
      const int column = 8 * n + lane % 4 * 2;
      const float x = sums[4 * n + 2 * r], y = sums[4 * n + 2 * r + 1];
      finite &= fabsf(x) < -minus_infinity<float>() && fabsf(y) < -minus_infinity<float>();
      const Neighbours<E> pair = {round_to<E>(x * scale), round_to<E>(y * scale)};
      if (here && column < columns) *reinterpret_cast<Neighbours<E>*>(line + column) = pair;
    }
    const unsigned lanes = __ballot_sync(~0u, here && !finite);
#pragma unroll
    for (int g = 0; g < 8; ++g) again |= (lanes >> 4 * g & 15) != 0 ? 1u << (g + 8 * r) : 0u;
  }
  return again;
}

// What a warp needs to compute a row of a gradient in plain code.
template <bool ByQueries, typename Index>
struct PlainGradient {
  const GradientOperands& operands;
  const View &matrices, &first, &second;
  const Batch& batch;
  const RowGroups<Index>& schedule;
  const Index* states;
  const unsigned* bits;
  const AttentionProblem& problem;
  const ScoreArgs<float>& score_args;
  long long first_head, shares;

  // Compute the rows of a warp that have a bit in `again` once more, by plain multiplications of
  // what is attended; `tile` is that of the first head.
  template <typename E, typename Score, typename Mask, int Other, bool Drops, typename Tile>
  __device__ __forceinline__ void rows(unsigned again, Tile& tile, int first_row) const {
    typedef Pairs<ByQueries, Other, Drops> OfPairs;
    const int lane = threadIdx.x % 32;
    const int features = problem.features, value_features = problem.value_features;
    const int width = ByQueries ? features : max(features, value_features);
    tile.enter(first_head, matrices, batch, problem);
    E* const first_to = tile.at.template pointer<E>(first);
    E* const second_to = ByQueries ? nullptr : tile.at.template pointer<E>(second);
#pragma unroll 1
    for (; again; again &= again - 1) {
      const int of_tile = first_row + __ffs(again) - 1, own = tile.first + of_tile;
      const int block_row = Tile::block_row(of_tile), row = tile.row_in_block(of_tile);
#pragma unroll 1
      for (int c = lane; c - lane < width; c += 32) {
        float sums[2] = {0, 0};
#pragma unroll 1
        for (long long b = first_head; b < first_head + shares; ++b) {
          tile.enter(b, matrices, batch, problem);
          // delta is contiguous in the order of the heads, so its place says a head's number.
          const Score score(score_args, tile.at,
                            tile.at.offset(operands.delta) / score_args.queries);
          const Mask mask(score, bits, tile.matrix * problem.nnzb);
          const GradientHead<E, ByQueries> head(tile.at, operands);
          const E* left = head.left + own * head.left_row;
          const E* right = head.right + own * head.right_row;
#pragma unroll 1
          for (int e = 0; e < schedule.counts[tile.group]; ++e) {
            const long long entry = schedule.starts[tile.group] + e;
            const long long state = states[entry * Tile::ROWS + block_row];
            if (state == NOT_STORED) continue;
#pragma unroll 1
            for (int n0 = 0; n0 < Other; n0 += 32) {
              const int n = n0 + lane;
              const long long first_other = (long long)schedule.columns[entry] * Other + n0;
              typename OfPairs::Given pair = {0, 0, false};
              bool attended = false;
              if (n < Other) {
                const int other = int(first_other) + lane;
                const E* other_left = head.other_left + other * head.other_left_row;
                const E* other_right = head.other_right + other * head.other_right_row;
                float acc = 0, dweight = 0;
#pragma unroll 1
                for (int i = 0; i < features; ++i)
                  acc = fma_acc(to_acc(left[i]), to_acc(other_left[i]), acc);
#pragma unroll 1
                for (int i = 0; i < value_features; ++i)
                  dweight = fma_acc(to_acc(right[i]), to_acc(other_right[i]), dweight);
                const long long of_query = ByQueries ? own : other;
                float x = OfPairs::score_of(score, acc, own, other);
                attended = OfPairs::attends(score, mask, state, row, n, own, other, x);
                pair = OfPairs::given(score, attended, x, score.bend(acc), dweight, own, other,
                                      head.lse[of_query * head.lse_row],
                                      head.delta[of_query * head.delta_row]);
              }
              unsigned met = __ballot_sync(~0u, attended);
              const unsigned kept = __ballot_sync(~0u, pair.kept);
#pragma unroll 1
              for (; met; met &= met - 1) {
                const int i = __ffs(met) - 1;
                const float dscore = __shfl_sync(~0u, pair.dscore, i);
                const float weight = __shfl_sync(~0u, pair.weight, i);
                const long long other = first_other + i;
                if (c < features)
                  sums[0] = fma_acc(
                      dscore, to_acc(head.other_left[other * head.other_left_row + c]), sums[0]);
                if (!ByQueries && c < value_features && kept >> i & 1)
                  sums[1] = fma_acc(
                      weight, to_acc(head.other_right[other * head.other_right_row + c]), sums[1]);
              }
            }
          }
        }
        if (c < features) first_to[own * first.row + c] = round_to<E>(sums[0] * score_args.scale);
        if (!ByQueries && c < value_features)
          second_to[own * second.row + c] = round_to<E>(sums[1]);
      }
    }
  }
};

}  // namespace sparsegpu
