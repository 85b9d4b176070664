// Exchanges, sums and maxima across the lanes of a warp.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

template <typename E>
__device__ __forceinline__ E shuffle(E x, int from) {
  return __shfl_sync(~0u, x, from);
}
template <typename R>
__device__ __forceinline__ Complex<R> shuffle(Complex<R> x, int from) {
  return {shuffle(x.re, from), shuffle(x.im, from)};
}

template <typename E>
__device__ __forceinline__ E shuffle_xor(E x, int mask) {
  return __shfl_xor_sync(~0u, x, mask);
}
template <typename R>
__device__ __forceinline__ Complex<R> shuffle_xor(Complex<R> x, int mask) {
  return {shuffle_xor(x.re, mask), shuffle_xor(x.im, mask)};
}

// The sum over the warp, in each lane.
template <typename E>
__device__ __forceinline__ E warp_sum(E x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

// The largest of the warp, in each lane.
template <typename E>
__device__ __forceinline__ E warp_max(E x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const E other = shuffle_xor(x, mask);
    x = other > x ? other : x;
  }
  return x;
}

}  // namespace sparsegpu
