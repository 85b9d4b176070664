// Online softmax over the accumulators of mma or wgmma: running maximum, normaliser, and the factor
// by which what was summed before shrinks (Milakov and Gimelshein, 2018).
//
// A thread holds two rows of the scores, elements 4 j and 4 j + 1 of the first and 4 j + 2 and
// 4 j + 3 of the second (ptx/mma.cuh, d); four neighbouring lanes share them. Scores are in units
// that the caller chooses: `exponent` times a score is the exponent of a power of two, so that a
// weight is one multiplication and addition and one ex2.
#pragma once

#include "common/score.cuh"
#include "ptx/ex2.cuh"

namespace sparsegpu {

constexpr float LOG2_E = 1.4426950408889634f;

struct OnlineSoftmax {
  float exponent;
  float top[2], sum[2];  // sum: of this lane's share of the columns

  // `start`: a score that is there before the others, -inf for none.
  __device__ __forceinline__ OnlineSoftmax(float exponent, float start) : exponent(exponent) {
    const bool counts = threadIdx.x % 4 == 0 && start != minus_infinity<float>();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = start;
      sum[r] = counts ? 1.0f : 0.0f;
    }
  }

  // Turn scores (-inf: not attended) into weights, relative to the new maximum.
  template <int N>
  __device__ __forceinline__ void operator()(float (&scores)[N], float (&shrink)[2]) {
    float highest[2] = {top[0], top[1]};
#pragma unroll
    for (int i = 0; i < N; ++i)
      highest[i / 2 % 2] = fmaxf(highest[i / 2 % 2], scores[i]);  // a NaN is not higher
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      highest[r] = fmaxf(highest[r], __shfl_xor_sync(~0u, highest[r], 1));
      highest[r] = fmaxf(highest[r], __shfl_xor_sync(~0u, highest[r], 2));
      // a row without any score so far: its weights are 0, not exp(-inf - -inf)
      base[r] = highest[r] == minus_infinity<float>() ? 0.0f : highest[r] * exponent;
      shrink[r] = exp2_approx(fmaf(top[r], exponent, -base[r]));
      top[r] = highest[r];
      sum[r] *= shrink[r];
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      scores[i] = exp2_approx(fmaf(scores[i], exponent, -base[i / 2 % 2]));
      sum[i / 2 % 2] += scores[i];
    }
  }

  // Add up the lanes' shares.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    }
  }
};

}  // namespace sparsegpu
