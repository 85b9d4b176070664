// Online softmax over the accumulators of mma or wgmma: running maximum, normaliser, and the factor
// that rescales earlier sums (Milakov and Gimelshein, 2018).
//
// A thread holds two rows of the scores, elements 4 j and 4 j + 1 of the first and 4 j + 2 and
// 4 j + 3 of the second (ptx/mma.cuh, d); four neighbouring lanes share them. Scores are in units
// that the caller chooses: `exponent` times a score is the exponent of a power of two, so that a
// weight is one multiplication and addition and one ex2. All of it is float, or float64.
//
// Weights are relative to a score near the highest so far. It follows the highest when that has
// risen by more than LARGEST_EXPONENT, so that it stays the same from most tiles to the next, and
// what was summed need not shrink. (Zadouri et al., "FlashAttention-4", 2026, "conditional
// rescaling".)
//
// Scores far from zero, as where a mask adds -1e9 or less to a whole row, hold no fractions, and
// what `exponent` times the top is rounded by would make weights of its equals 0 or infinite. There
// the exponent of a row is one whose product with the top is exact: a power of two.
#pragma once

#include "common/exp2_f64.cuh"
#include "common/score.cuh"
#include "ptx/ex2.cuh"

namespace sparsegpu {

constexpr f64 LOG2_E_F64 = 1.4426950408889634074;
constexpr float LOG2_E = float(LOG2_E_F64);
constexpr float LARGEST_EXPONENT = 8;  // of a weight: 256 times the weight of the score `top`
// The exponent of `top` from which on it is far from zero: rounded by up to 4.
constexpr float FAR_F32 = 1 << 26;
constexpr f64 FAR_F64 = 1ll << 55;

__device__ __forceinline__ float power_of_two(float x) {
  return exp2_approx(x);
}
__device__ __forceinline__ f64 power_of_two(f64 x) {
  return exp2_f64(x);
}

__device__ __forceinline__ bool is_far(float x) {
  return fabsf(x) >= FAR_F32;
}
__device__ __forceinline__ bool is_far(f64 x) {
  return fabs(x) >= FAR_F64;
}

// A NaN is not higher than `x`.
__device__ __forceinline__ float higher(float x, float y) {
  return fmaxf(x, y);
}
__device__ __forceinline__ f64 higher(f64 x, f64 y) {
  return y > x ? y : x;
}

template <typename A>
struct OnlineSoftmax {
  A exponent, far_exponent;
  A top[2], sum[2];  // what weights are relative to; of this lane's share of the columns

  // `folded`: scores are products, which the exponent scales, and none is far from zero.
  __device__ __forceinline__ OnlineSoftmax(bool folded, A scale)
      : exponent(folded ? scale * A(LOG2_E_F64) : A(LOG2_E_F64)),
        far_exponent(folded ? exponent : A(1)) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = minus_infinity<A>();
      sum[r] = 0;
    }
  }

  // Turn scores (-inf: not attended) into weights.
  template <int N>
  __device__ __forceinline__ void operator()(A (&scores)[N], A (&shrink)[2]) {
    const bool used[1] = {true};
    (*this)(scores, used, shrink);
  }
  // The same for `Groups` groups of scores. Groups that are not used, by all lanes alike, are not
  // read: their weights are 0.
  template <int N, int Groups>
  __device__ __forceinline__ void operator()(A (&scores)[N], const bool (&used)[Groups],
                                             A (&shrink)[2]) {
    constexpr int EACH = N / Groups;
    // Even and odd columns have a maximum each: two chains of dependent instructions overlap.
    A highest[2][2] = {{top[0], top[0]}, {top[1], top[1]}};
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      if (!used[g]) continue;
#pragma unroll
      for (int i = g * EACH; i < (g + 1) * EACH; ++i) {
        A& here = highest[i / 2 % 2][i % 2];
        here = higher(here, scores[i]);
      }
    }
    A factor[2], base[2], sums[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      A all = higher(highest[r][0], highest[r][1]);
      all = higher(all, __shfl_xor_sync(~0u, all, 1));
      all = higher(all, __shfl_xor_sync(~0u, all, 2));
      const bool rises = (all - top[r]) * exponent > LARGEST_EXPONENT;  // also from -inf
      shrink[r] = rises ? power_of_two((top[r] - all) * exponent) : A(1);
      top[r] = rises ? all : top[r];
      // a row without any score so far: its weights are 0, not exp(-inf - -inf)
      factor[r] = is_far(top[r] * exponent) ? far_exponent : exponent;
      base[r] = top[r] == minus_infinity<A>() ? A(0) : top[r] * factor[r];
      sums[r][0] = sum[r] * shrink[r];
      sums[r][1] = 0;
    }
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      if (used[g]) {
#pragma unroll
        for (int i = g * EACH; i < (g + 1) * EACH; ++i) {
          scores[i] = power_of_two(fma_acc(scores[i], factor[i / 2 % 2], -base[i / 2 % 2]));
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

  // Rescale earlier sums, where any row of the warp needs it.
  template <int N>
  static __device__ __forceinline__ void rescale(A (&sums)[N], const A (&shrink)[2]) {
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
