// Online softmax over the accumulators of mma or wgmma, and over rows that are held otherwise:
// running maximum, normaliser, and the factor that rescales earlier sums (Milakov and Gimelshein,
// 2018).
//
// A thread holds two rows of the scores, elements 4 j and 4 j + 1 of the first and 4 j + 2 and
// 4 j + 3 of the second (ptx/mma.cuh, d); four neighbouring lanes share them. Scores are in units
// that the caller chooses: `exponent` times a score is the exponent of a power of two, so that a
// weight is one multiplication and addition and one ex2. All of it is float, or float64.
//
// Weights of a row are relative to a base, near the highest score so far. It follows the highest
// where that is above it by more than LARGEST_EXPONENT. So it stays the same from most tiles to the
// next, and what was summed need not shrink (Zadouri et al., "FlashAttention-4", 2026, "conditional
// rescaling"). Each lane compares its own scores with it: the lanes of a row exchange their maxima
// only where a score of the warp is that much above its base.
//
// Scores far from zero, as where a mask adds -1e9 or less to a whole row, hold no fractions, and
// what `exponent` times the highest is rounded by would make weights of its equals 0 or infinite.
// There the exponent of a row is one whose product with the highest is exact: a power of two.
#pragma once

#include "common/exp2_f64.cuh"
#include "common/score.cuh"
#include "ptx/ex2.cuh"

namespace sparsegpu {

constexpr f64 LOG2_E_F64 = 1.4426950408889634074;
constexpr float LOG2_E = float(LOG2_E_F64);
constexpr float LARGEST_EXPONENT = 8;  // of a weight: 256 times that of the base
// The exponent of a score from which on it is far from zero: rounded by up to 4.
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
  // Of the lane's two rows: whether the base is far from zero; the base, an exponent of two, -inf
  // without any score so far; the sum of this lane's share of the columns.
  bool far[2];
  A base[2], sum[2];

  // `folded`: scores are products, which the exponent scales, and none is far from zero.
  __device__ __forceinline__ OnlineSoftmax(bool folded, A scale)
      : exponent(folded ? scale * A(LOG2_E_F64) : A(LOG2_E_F64)),
        far_exponent(folded ? exponent : A(1)) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      far[r] = false;
      base[r] = minus_infinity<A>();
      sum[r] = 0;
    }
  }

  // Turn scores (-inf: not attended) into weights. Earlier sums of row r are to be multiplied by
  // shrink[r].
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
    A highest[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) highest[r][0] = highest[r][1] = minus_infinity<A>();
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      if (!used[g]) continue;
#pragma unroll
      for (int i = g * EACH; i < (g + 1) * EACH; ++i) {
        A& here = highest[i / 2 % 2][i % 2];
        here = higher(here, scores[i]);
      }
    }
    const A of_lane[2] = {higher(highest[0][0], highest[0][1]),
                          higher(highest[1][0], highest[1][1])};
    shrink[0] = shrink[1] = 1;
    if (__any_sync(~0u, is_high(of_lane[0], 0) || is_high(of_lane[1], 1))) raise(of_lane, shrink);
    A its_base[2], sums[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // of a row without any score so far: exp2(-inf), not exp2(-inf - -inf)
      its_base[r] = base[r] == minus_infinity<A>() ? A(0) : base[r];
      sums[r][0] = sum[r];
      sums[r][1] = 0;
    }
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      if (used[g]) {
#pragma unroll
        for (int i = g * EACH; i < (g + 1) * EACH; ++i) {
          scores[i] = power_of_two(fma_acc(scores[i], factor(i / 2 % 2), -its_base[i / 2 % 2]));
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

  // What scores of row r are multiplied by for exponents of two.
  __device__ __forceinline__ A factor(int r) const { return far[r] ? far_exponent : exponent; }
  // Whether the base of row r has to follow a score.
  __device__ __forceinline__ bool is_high(A score, int r) const {
    return fma_acc(score, factor(r), -base[r]) > A(LARGEST_EXPONENT);  // also from -inf
  }

  // Make the bases of rows follow the scores that are high.
  __device__ __forceinline__ void raise(const A (&of_lane)[2], A (&shrink)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      A all = higher(of_lane[r], __shfl_xor_sync(~0u, of_lane[r], 1));
      all = higher(all, __shfl_xor_sync(~0u, all, 2));
      if (is_high(all, r)) {
        const A before = base[r];
        far[r] = is_far(all * exponent);
        base[r] = all * factor(r);
        shrink[r] = power_of_two(before - base[r]);
        sum[r] *= shrink[r];
      }
    }
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

  // The logit of a row's base; -inf where nothing was attended.
  __device__ __forceinline__ A logit(int r) const {
    return base[r] / (factor(r) == exponent ? A(LOG2_E_F64) : A(1));
  }
};

// The same of one row, whose weights are powers of e and whose base is the highest score so far:
// for kernels that hold rows of scores otherwise.
template <typename A>
struct RunningMaximum {
  A top = minus_infinity<A>();

  // What weights are relative to: 0 without any score so far, so that they are exp(-inf).
  __device__ __forceinline__ A base() const { return top == minus_infinity<A>() ? A(0) : top; }
  // Follow `highest`, which is not below the top. Returns what earlier sums are multiplied by.
  __device__ __forceinline__ A raise(A highest) {
    const A before = top;
    top = highest;
    return exp(before - base());
  }
};

}  // namespace sparsegpu
