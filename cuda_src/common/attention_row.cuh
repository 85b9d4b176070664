// One query's sum over the values, by one warp in plain code: for the rows of a tile whose sums are
// not numbers.
//
// Tensor cores multiply a value that is not attended by zero, and zero times a NaN or an infinity
// is a NaN. Here such a value is left out. Where the NaN belongs to the result, it comes out again.
#pragma once

#include "common/tile_mask.cuh"
#include "common/view.cuh"

namespace sparsegpu {

// The operands of one head.
template <typename E>
struct HeadOperands {
  const E *query, *key, *value;
  long long query_row, key_row, value_row;  // strides; columns are contiguous
  int features, value_features;

  __device__ __forceinline__ HeadOperands(const BatchIndex& at, const View& query, const View& key,
                                          const View& value, int features, int value_features)
      : query(at.pointer<const E>(query)),
        key(at.pointer<const E>(key)),
        value(at.pointer<const E>(value)),
        query_row(query.row),
        key_row(key.row),
        value_row(value.row),
        features(features),
        value_features(value_features) {}
};

// Call put(column, sum) for the columns of the sum over the values of `count` entries of a
// schedule, with weights relative to `top`.
template <int BlockM, int BlockK, typename E, typename A, typename Index, typename Score,
          typename Mask, typename Put>
__device__ __forceinline__ void attend_row(const HeadOperands<E>& operands,
                                           const RowGroups<Index>& schedule, const Index* states,
                                           int block_rows, long long first_entry, int count,
                                           int block_row, int row_in_block, int query,
                                           const Score& score, const Mask& mask, A top, Put put) {
  const int lane = threadIdx.x % 32;
  const E* q = operands.query + (long long)query * operands.query_row;
#pragma unroll 1
  for (int first = 0; first < operands.value_features; first += 32) {
    const int column = first + lane;
    A sum = 0;
#pragma unroll 1
    for (int e = 0; e < count; ++e) {
      const long long entry = first_entry + e;
      const long long state = states[entry * block_rows + block_row];
      if (state == NOT_STORED) continue;
      const int first_key = schedule.columns[entry] * BlockK;
#pragma unroll 1
      for (int c0 = 0; c0 < BlockK; c0 += 32) {
        const int c = c0 + lane;
        const int j = first_key + c;
        A x[1] = {0};
        bool attended[1] = {false};
        if (c < BlockK) {
          const E* k = operands.key + (long long)j * operands.key_row;
#pragma unroll 1
          for (int i = 0; i < operands.features; ++i)
            x[0] = fma_acc(to_acc(q[i]), to_acc(k[i]), x[0]);
          x[0] = score.score(x[0], query, j);
          mask.row(state, row_in_block, c, attended, x);
          attended[0] = attended[0] && score.in_order(query, j);
        }
        const A base = top == minus_infinity<A>() ? A(0) : top;
        const A weight = to_acc(round_to<E>(attended[0] ? exp(x[0] - base) : A(0)));
        unsigned kept = __ballot_sync(~0u, score.keeps(attended[0], query, j));
#pragma unroll 1
        for (; kept; kept &= kept - 1) {
          const int i = __ffs(kept) - 1;
          const A w = __shfl_sync(~0u, weight, i);
          if (column < operands.value_features)
            sum = fma_acc(
                w,
                to_acc(
                    operands.value[(long long)(first_key + c0 + i) * operands.value_row + column]),
                sum);
        }
      }
    }
    if (column < operands.value_features) put(column, sum);
  }
}

}  // namespace sparsegpu
