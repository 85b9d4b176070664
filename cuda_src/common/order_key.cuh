// Unsigned integers that order like numbers.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

// order_key(x): an unsigned integer that orders like x. NaN is below everything and -0.0 equals
// 0.0, so that ties are decided by the index.
__device__ __forceinline__ unsigned order_key(f32 x) {
  if (x != x) return 0;
  unsigned bits = __float_as_uint(x + 0.0f);  // -0.0 + 0.0 is 0.0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ unsigned long long order_key(f64 x) {
  if (x != x) return 0;
  unsigned long long bits = __double_as_longlong(x + 0.0);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ __forceinline__ unsigned long long order_key(s64 x) {
  return static_cast<unsigned long long>(x) ^ 1ull << 63;
}
// All other types widen exactly to f32.
template <typename E>
__device__ __forceinline__ unsigned order_key(E x) {
  return order_key(f32(to_acc(x)));
}

}  // namespace sparsegpu
