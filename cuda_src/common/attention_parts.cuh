// Attention over part of a query's keys: its running maximum, the sum of its weights relative to
// that, and the sums over the values. Parts are merged by what their maxima differ by.
//
// In workspace a part of a row is two numbers, maximum and sum, and then a sum a column.
#pragma once

#include "common/score.cuh"

namespace sparsegpu {

constexpr int PART_HEADER = 2;
template <typename Float>
struct PartialRow {
  Float* at;

  __device__ __forceinline__ Float& top() const { return at[0]; }
  __device__ __forceinline__ Float& sum() const { return at[1]; }
  __device__ __forceinline__ Float& column(int c) const { return at[PART_HEADER + c]; }
};

// The weight that what is relative to a maximum has relative to a higher one.
__device__ __forceinline__ float rescaled(float top, float higher) {
  return top == minus_infinity<float>() ? 0.0f : expf(top - higher);
}

// The normaliser of a row of all its keys, with a logit that has no value (-inf: there is none).
struct Normalizer {
  float share;  // what sums over the values are multiplied by
  float lse;

  __device__ __forceinline__ Normalizer(float top, float sum, float sink, float kept_scale) {
    const float highest = fmaxf(top, sink);
    const float shrink = rescaled(top, highest);
    const float total = sum * shrink + rescaled(sink, highest);
    // nothing attended: zeros, and log(0) = -inf
    share = total == 0 ? 0.0f : shrink * kept_scale / total;
    lse = highest + logf(total);
  }
};

}  // namespace sparsegpu
