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

// Transpose four words across the four lanes that share a row of a tensor-core fragment
// (ptx/mma.cuh, d): word i of lane t becomes word t of lane i. So parts of four groups of eight
// columns become the whole of one.
__device__ __forceinline__ void transpose_across_lanes(unsigned (&words)[4]) {
  const bool odd = threadIdx.x % 2, high = threadIdx.x % 4 / 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const unsigned got = __shfl_xor_sync(~0u, odd ? words[i] : words[i + 1], 1);
    words[i] = odd ? got : words[i];
    words[i + 1] = odd ? words[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned got = __shfl_xor_sync(~0u, high ? words[i] : words[i + 2], 2);
    words[i] = high ? got : words[i];
    words[i + 2] = high ? words[i + 2] : got;
  }
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
