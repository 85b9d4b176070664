// Bisection in ascending numbers.
#pragma once

namespace sparsegpu {

// The place in begin .. end - 1 of the last of the ascending `values` that is at most x; `begin`
// where none is.
template <typename Place, typename E>
__device__ __forceinline__ Place last_at_most(const E* values, Place begin, Place end,
                                              long long x) {
  while (end - begin > 1) {
    const Place middle = (begin + end) / 2;
    (values[middle] <= x ? begin : end) = middle;
  }
  return begin;
}

}  // namespace sparsegpu
