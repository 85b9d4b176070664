// The activations of an epilogue (common/epilogue.cuh), in float32 and float64.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

enum class Activation { none, relu, gelu, gelu_erf, silu };

// The float32 activations tolerate flushed subnormals: a power or reciprocal that small changes no
// rounded result.
__device__ __forceinline__ f32 exp2_of(f32 y) {
  f32 power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(y));
  return power;
}
__device__ __forceinline__ f32 reciprocal(f32 x) {
  f32 result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// x / (1 + 2^y)
__device__ __forceinline__ f32 over_one_plus_exp2(f32 x, f32 y) {
  return x * reciprocal(1.0f + exp2_of(y));
}
__device__ __forceinline__ f64 over_one_plus_exp2(f64 x, f64 y) {
  return x / (1.0 + exp2(y));
}
__device__ __forceinline__ f32 erf_of(f32 x) {
  return erff(x);
}
__device__ __forceinline__ f64 erf_of(f64 x) {
  return erf(x);
}

// The activations that are x / (1 + 2^y), and y.
template <Activation F>
constexpr bool LOGISTIC = F == Activation::gelu || F == Activation::silu;
template <Activation F, typename C>
__device__ __forceinline__ C exponent(C x) {
  if constexpr (F == Activation::silu) return x * C(-1.4426950408889634);  // 1 / ln 2
  // (1 + tanh(z)) / 2 = 1 / (1 + exp(-2 z)), and z = sqrt(2 / pi) (x + 0.044715 x^3)
  const C factor = C(-2.302208198144325) + C(-0.1029432395800235) * (x * x);  // 1 / ln 2, too
  return x * factor;
}

// NaN passes through every activation.
template <Activation F, typename C>
__device__ __forceinline__ C activate(C x) {
  if constexpr (F == Activation::none) {
    return x;
  } else if constexpr (F == Activation::relu) {
    return x < C(0) ? C(0) : x;
  } else if constexpr (LOGISTIC<F>) {
    return over_one_plus_exp2(x, exponent<F>(x));
  } else {
    return C(0.5) * x * (C(1) + erf_of(x * C(0.70710678118654752440)));
  }
}

// Values of float32 fragments are multiplied by PRESCALE, for then -y takes fewer instructions.
template <Activation F>
constexpr f32 PRESCALE = F == Activation::gelu ? 0.4686686930532063f : 1.0f;
template <Activation F>
__device__ __forceinline__ f32 minus_exponent(f32 t) {
  if constexpr (F == Activation::gelu)
    return t * __fmaf_rn(t, t, 4.91222953926424f);
  else
    return -exponent<F>(t);
}

// The activations of x = s / PRESCALE and x = t / PRESCALE, as x p / (1 + p) with p = 2^-y. Powers
// and reciprocals run on few units of a multiprocessor, so the two share one reciprocal, r = 1 / (a
// b): then 1 / a = b r and 1 / b = a r.
template <Activation F>
__device__ __forceinline__ void activate_two(f32& s, f32& t) {
  // Powers are clamped at 2^62, where p / (1 + p) rounds to one: so a b and its reciprocal are
  // normal numbers, and a NaN in one value does not reach the other.
  const f32 p = exp2_of(fminf(minus_exponent<F>(s), 62.0f));
  const f32 q = exp2_of(fminf(minus_exponent<F>(t), 62.0f));
  const f32 b = __fmaf_rn(q, PRESCALE<F>, PRESCALE<F>);
  const f32 both = reciprocal(__fmaf_rn(p, b, b));
  s *= p * __fmaf_rn(q, both, both);
  t *= q * __fmaf_rn(p, both, both);
}

}  // namespace sparsegpu
