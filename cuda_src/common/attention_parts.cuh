// Attention over part of a query's keys: its running maximum, the sum of its weights relative to
// that, and the sums over the values. Parts are merged by what their maxima differ by.
//
// In workspace a part of a row is two numbers, maximum and sum, and then a sum a column.
#pragma once

#include "common/normalizer.cuh"
#include "common/types.cuh"

namespace sparsegpu {

constexpr int PART_HEADER = 2;
template <typename Float>
struct PartialRow {
  Float* at;

  __device__ __forceinline__ Float& top() const { return at[0]; }
  __device__ __forceinline__ Float& sum() const { return at[1]; }
  __device__ __forceinline__ Float& column(int c) const { return at[PART_HEADER + c]; }
};

// The part of row `row` of a split (SplitGroup) of a head: of each head there are `splits`, with
// `rows` rows each.
template <typename Float>
__device__ __forceinline__ Float* split_row(Float* parts, long long splits, long long head,
                                            long long split, int rows, int row, int row_floats) {
  return parts + ((head * splits + split) * rows + row) * row_floats;
}

// Merge the parts of a row, in their order, and store it; by one warp. `part(p)`: a PartialRow.
template <typename Out, int ValueFeatures, typename GetPart>
__device__ __forceinline__ void merge_parts(int count, GetPart part, float sink, float kept_scale,
                                            int value_features, Out* out, long long col,
                                            float* lse) {
  const int lane = threadIdx.x % 32;
  float top = minus_infinity<float>(), total = 0;
  for (int p = lane; p < count; p += 32) top = fmaxf(top, part(p).top());
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, apart));
  float sums[ValueFeatures / 32] = {};
#pragma unroll 4
  for (int p = 0; p < count; ++p) {
    const PartialRow<const float> from = part(p);
    const float weight = rescaled(from.top(), top);
    total = fmaf(from.sum(), weight, total);
#pragma unroll
    for (int i = 0; i < ValueFeatures / 32; ++i)
      if (32 * i + lane < value_features)
        sums[i] = fmaf(from.column(32 * i + lane), weight, sums[i]);
  }
  const Normalizer<float> normalizer(top, total, sink, kept_scale);
#pragma unroll
  for (int i = 0; i < ValueFeatures / 32; ++i)
    if (32 * i + lane < value_features)
      out[(32 * i + lane) * col] = round_to<Out>(sums[i] * normalizer.share);
  if (lane == 0 && lse != nullptr) *lse = normalizer.lse;
}

}  // namespace sparsegpu
