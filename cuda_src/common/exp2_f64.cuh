// 2 to a power in float64, without branches: weights of a tile are computed side by side, where the
// branch that exp and exp2 of CUDA's library take for large powers would have one wait for the
// other.
//
// 2**x = 2**n * 2**f with n the nearest integer to x. 2**f = 1 + f q(f), q the polynomial whose
// largest relative error of 2**f is the smallest: 1.8e-17. That of the result is 2**-52 at most.
// Powers from 1024 on are the caller's to avoid; subnormal results are 0.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

__device__ __forceinline__ f64 exp2_f64(f64 x) {
  constexpr f64 Q[] = {0x1.62e42fefa39f3p-1,  0x1.ebfbdff82c598p-3,  0x1.c6b08d7048f31p-5,
                       0x1.3b2ab6fba1e1cp-7,  0x1.5d87fe7bbbe07p-10, 0x1.4309130961163p-13,
                       0x1.ffcbee3b0af8cp-17, 0x1.62bfd49ed0adfp-20, 0x1.b54167a0b9061p-24,
                       0x1.e605f979c7a5dp-28, 0x1.c0638527edf34p-32};
  constexpr f64 SHIFT = 0x1.8p52;  // a sum with it is an integer, in the lowest bits
  const f64 shifted = __dadd_rn(x, SHIFT);
  const f64 f = x - __dadd_rn(shifted, -SHIFT);
  f64 q = Q[10];
#pragma unroll
  for (int i = 9; i >= 0; --i) q = fma(q, f, Q[i]);
  const int n = int(__double_as_longlong(shifted));
  const f64 scale = __longlong_as_double((long long)(n + 1023) << 52);
  const f64 power = fma(scale * f, q, scale);  // of a NaN a NaN, whatever the scale
  // From -1022 down to -infinity by the upper halves, which no float64 unit has to compare.
  const unsigned upper = unsigned(__double_as_longlong(x) >> 32);
  return upper - 0xC08FF000u <= 0xFFF00000u - 0xC08FF000u ? 0.0 : power;
}

}  // namespace sparsegpu
