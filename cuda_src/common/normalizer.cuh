// The normaliser of a row of attention, whose sums over the values are relative to exp(top).
//
// A sink is a logit of its own without a value. It is counted here, once a row, so that no kernel
// knows of it while it walks the keys.
#pragma once

#include "common/score.cuh"

namespace sparsegpu {

// The factor that makes sums relative to `highest` of sums relative to `top`, a lower maximum.
template <typename A>
__device__ __forceinline__ A rescaled(A top, A highest) {
  return top == minus_infinity<A>() ? A(0) : exp(top - highest);
}

// `sum`: of the weights; `sink`: -inf for none. Sinks is false where no row has one.
template <typename A, bool Sinks = true>
struct Normalizer {
  A share;  // what sums over the values are multiplied by; nothing attended: zeros
  A lse;

  __device__ __forceinline__ Normalizer(A top, A sum, A sink, A kept_scale) {
    if constexpr (Sinks) {
      const A highest = sink > top ? sink : top;
      const A shrink = rescaled(top, highest);
      const A total = sum * shrink + rescaled(sink, highest);
      share = sum == 0 ? A(0) : shrink * kept_scale / total;
      lse = highest + log(total);
    } else {
      share = sum == 0 ? A(0) : kept_scale / sum;
      lse = top + log(sum);
    }
  }
};

}  // namespace sparsegpu
