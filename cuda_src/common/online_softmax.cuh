// Online softmax over the accumulators of mma or wgmma: running maximum, normaliser, and the factor
// by which what was summed before shrinks (Milakov and Gimelshein, 2018).
//
// A thread holds two rows of the scores, elements 4 j and 4 j + 1 of the first and 4 j + 2 and
// 4 j + 3 of the second (ptx/mma.cuh, d); four neighbouring lanes share them. Scores are in units
// that the caller chooses: `exponent` times a score is the exponent of a power of two, so that a
// weight is one multiplication and addition and one ex2.
//
// Weights are relative to a score near the highest so far. It follows the highest when that has
// risen by more than LARGEST_EXPONENT, so that it stays the same from most tiles to the next, and
// what was summed need not shrink. (Zadouri et al., "FlashAttention-4", 2026, "conditional
// rescaling".)
#pragma once

#include "common/score.cuh"
#include "ptx/ex2.cuh"

namespace sparsegpu {

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LARGEST_EXPONENT = 8;  // of a weight: 256 times the weight of the score `top`

struct OnlineSoftmax {
  float exponent;
  float top[2], sum[2];  // what weights are relative to; of this lane's share of the columns

  // `start`: a score that is there before the others, -inf for none.
  __device__ __forceinline__ OnlineSoftmax(float exponent, float start) : exponent(exponent) {
    const bool counts = threadIdx.x % 4 == 0 && start != minus_infinity<float>();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = start;
      sum[r] = counts ? 1.0f : 0.0f;
    }
  }

  // Turn scores (-inf: not attended) into weights.
  template <int N>
  __device__ __forceinline__ void operator()(float (&scores)[N], float (&shrink)[2]) {
    const bool used[1] = {true};
    (*this)(scores, used, shrink);
  }
  // The same of `Groups` groups of scores, where those that are not used (for all lanes) are not
  // looked at: their weights are 0.
  template <int N, int Groups>
  __device__ __forceinline__ void operator()(float (&scores)[N], const bool (&used)[Groups],
                                             float (&shrink)[2]) {
    constexpr int EACH = N / Groups;
    // Of even and odd columns apart: a warp waits for each step of a chain.
    float highest[2][2] = {{top[0], top[0]}, {top[1], top[1]}};
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      if (!used[g]) continue;
#pragma unroll
      for (int i = g * EACH; i < (g + 1) * EACH; ++i) {
        float& here = highest[i / 2 % 2][i % 2];
        here = fmaxf(here, scores[i]);  // a NaN is not higher
      }
    }
    float base[2], sums[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float all = fmaxf(highest[r][0], highest[r][1]);
      all = fmaxf(all, __shfl_xor_sync(~0u, all, 1));
      all = fmaxf(all, __shfl_xor_sync(~0u, all, 2));
      const bool rises = (all - top[r]) * exponent > LARGEST_EXPONENT;  // also from -inf
      shrink[r] = rises ? exp2_approx((top[r] - all) * exponent) : 1.0f;
      top[r] = rises ? all : top[r];
      // a row without any score so far: its weights are 0, not exp(-inf - -inf)
      base[r] = top[r] == minus_infinity<float>() ? 0.0f : top[r] * exponent;
      sums[r][0] = sum[r] * shrink[r];
      sums[r][1] = 0;
    }
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      if (used[g]) {
#pragma unroll
        for (int i = g * EACH; i < (g + 1) * EACH; ++i) {
          scores[i] = exp2_approx(fmaf(scores[i], exponent, -base[i / 2 % 2]));
          sums[i / 2 % 2][i % 2] += scores[i];
        }
      } else {
#pragma unroll
        for (int i = g * EACH; i < (g + 1) * EACH; ++i) scores[i] = 0;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = sums[r][0] + sums[r][1];
  }

  // Shrink what was summed before, where a row of the warp has to.
  template <int N>
  static __device__ __forceinline__ void rescale(float (&sums)[N], const float (&shrink)[2]) {
    if (!__any_sync(~0u, shrink[0] != 1 || shrink[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] *= shrink[i / 2 % 2];
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
