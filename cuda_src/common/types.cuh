// Element types, their accumulators and the conversions between the two.
//
// Each type has the name that runtime/types.py gives to its dtype, so that -DT=bf16 names it.
// All arithmetic here is IEEE: compiled without -ftz and without fast-math.
#pragma once

#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

namespace sparsegpu {

typedef __half f16;
typedef __nv_bfloat16 bf16;
typedef float f32;
typedef double f64;
typedef signed char s8;
typedef unsigned char u8;
typedef int s32;
typedef long long s64;
typedef __nv_fp8_e4m3 e4m3;

// A bool as NumPy stores it: any nonzero byte is true.
struct b8 {
  unsigned char bits;
};

// A complex number of two R, interleaved as NumPy stores it; aligned, so that one load takes both.
template <typename R>
struct alignas(2 * sizeof(R)) Complex {
  R re, im;
  Complex() = default;
  __device__ constexpr Complex(R re, R im = R(0)) : re(re), im(im) {}
  __device__ Complex& operator+=(Complex o) {
    re += o.re;
    im += o.im;
    return *this;
  }
};
typedef Complex<float> c64;
typedef Complex<double> c128;

template <typename R>
__device__ __forceinline__ Complex<R> operator+(Complex<R> a, Complex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename R>
__device__ __forceinline__ Complex<R> operator-(Complex<R> a, Complex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename R>
__device__ __forceinline__ Complex<R> operator-(Complex<R> a) {
  return {-a.re, -a.im};
}
template <typename R>
__device__ __forceinline__ Complex<R> operator*(Complex<R> a, Complex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <typename R>
__device__ __forceinline__ bool operator==(Complex<R> a, Complex<R> b) {
  return a.re == b.re && a.im == b.im;
}

template <bool Condition, typename X, typename Y>
struct Conditional {
  typedef X type;
};
template <typename X, typename Y>
struct Conditional<false, X, Y> {
  typedef Y type;
};

// Acc<E>::type: where products of E are summed (sparsegpu._arrays.accumulator_dtype).
// bool counts in s32, so that a sum that is not zero is the "or".
template <typename E>
struct Acc {
  typedef E type;
};
template <>
struct Acc<f16> {
  typedef f32 type;
};
template <>
struct Acc<bf16> {
  typedef f32 type;
};
template <>
struct Acc<e4m3> {
  typedef f32 type;
};
template <>
struct Acc<s8> {
  typedef s32 type;
};
template <>
struct Acc<u8> {
  typedef s32 type;
};
template <>
struct Acc<b8> {
  typedef s32 type;
};

// Whether sums are promoted: the tensor cores keep only some 13 bits when they add e4m3 products to
// an accumulator, so the sums of a few products each start at zero and are added in float32
// registers.
template <typename E>
constexpr bool PROMOTED = false;
template <>
constexpr bool PROMOTED<e4m3> = true;

// Widening is exact.
__device__ __forceinline__ f32 to_acc(f16 x) {
  return __half2float(x);
}
__device__ __forceinline__ f32 to_acc(bf16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ f32 to_acc(e4m3 x) {
  return float(x);
}
__device__ __forceinline__ f32 to_acc(f32 x) {
  return x;
}
__device__ __forceinline__ f64 to_acc(f64 x) {
  return x;
}
__device__ __forceinline__ s32 to_acc(s8 x) {
  return x;
}
__device__ __forceinline__ s32 to_acc(u8 x) {
  return x;
}
__device__ __forceinline__ s32 to_acc(b8 x) {
  return x.bits != 0;
}
__device__ __forceinline__ s32 to_acc(s32 x) {
  return x;
}
__device__ __forceinline__ c64 to_acc(c64 x) {
  return x;
}
__device__ __forceinline__ c128 to_acc(c128 x) {
  return x;
}

// acc + a * b in the accumulator of E; contracted to one fma where the type has it.
template <typename A>
__device__ __forceinline__ A fma_acc(A a, A b, A acc) {
  return acc + a * b;
}
__device__ __forceinline__ f32 fma_acc(f32 a, f32 b, f32 acc) {
  return fmaf(a, b, acc);
}
__device__ __forceinline__ f64 fma_acc(f64 a, f64 b, f64 acc) {
  return fma(a, b, acc);
}

// round_to<E>(x): to E in one rounding, nearest even. Integers saturate; NaN becomes 0 there.
template <typename E>
struct Round {
  static __device__ __forceinline__ E from(E x) { return x; }
};
template <>
struct Round<f32> {
  static __device__ __forceinline__ f32 from(f32 x) { return x; }
  static __device__ __forceinline__ f32 from(f64 x) { return __double2float_rn(x); }
  static __device__ __forceinline__ f32 from(s32 x) { return __int2float_rn(x); }
};
template <>
struct Round<f64> {
  static __device__ __forceinline__ f64 from(f64 x) { return x; }
  static __device__ __forceinline__ f64 from(f32 x) { return x; }
  static __device__ __forceinline__ f64 from(s32 x) { return x; }
};
template <>
struct Round<f16> {
  static __device__ __forceinline__ f16 from(f16 x) { return x; }
  static __device__ __forceinline__ f16 from(f32 x) { return __float2half_rn(x); }
  static __device__ __forceinline__ f16 from(f64 x) { return __double2half(x); }
  static __device__ __forceinline__ f16 from(s32 x) { return __int2half_rn(x); }
};
template <>
struct Round<bf16> {
  static __device__ __forceinline__ bf16 from(bf16 x) { return x; }
  static __device__ __forceinline__ bf16 from(f32 x) { return __float2bfloat16_rn(x); }
  static __device__ __forceinline__ bf16 from(f64 x) { return __double2bfloat16(x); }
  static __device__ __forceinline__ bf16 from(s32 x) { return __float2bfloat16_rn(double(x)); }
};
template <>
struct Round<e4m3> {
  static __device__ __forceinline__ e4m3 from(e4m3 x) { return x; }
  static __device__ __forceinline__ e4m3 from(f32 x) { return e4m3(x); }
};
template <>
struct Round<s32> {
  // cvt to an integer clamps at its range (PTX ISA, cvt).
  static __device__ __forceinline__ s32 from(s32 x) { return x; }
  static __device__ __forceinline__ s32 from(f32 x) { return __float2int_rn(x); }
  static __device__ __forceinline__ s32 from(f64 x) { return __double2int_rn(x); }
  static __device__ __forceinline__ s32 from(s64 x) {
    return x < -2147483647LL - 1 ? -2147483647 - 1 : x > 2147483647LL ? 2147483647 : s32(x);
  }
};
template <>
struct Round<s8> {
  static __device__ __forceinline__ s8 from(s8 x) { return x; }
  static __device__ __forceinline__ s8 from(s32 x) { return s8(min(max(x, -128), 127)); }
  static __device__ __forceinline__ s8 from(f32 x) { return from(__float2int_rn(x)); }
};
template <>
struct Round<u8> {
  static __device__ __forceinline__ u8 from(u8 x) { return x; }
  static __device__ __forceinline__ u8 from(s32 x) { return u8(min(max(x, 0), 255)); }
};
template <>
struct Round<b8> {
  static __device__ __forceinline__ b8 from(b8 x) { return x; }
  static __device__ __forceinline__ b8 from(s32 x) { return b8{(unsigned char)(x != 0)}; }
};
template <typename E, typename A>
__device__ __forceinline__ E round_to(A x) {
  return Round<E>::from(x);
}

// Zero tests: -0.0 is zero; NaN and subnormals are not.
__device__ __forceinline__ bool is_zero(f16 x) {
  return (__half_as_ushort(x) & 0x7fff) == 0;
}
__device__ __forceinline__ bool is_zero(bf16 x) {
  return (__bfloat16_as_ushort(x) & 0x7fff) == 0;
}
__device__ __forceinline__ bool is_zero(e4m3 x) {
  return (x.__x & 0x7f) == 0;
}
__device__ __forceinline__ bool is_zero(f32 x) {
  return x == 0.0f;
}
__device__ __forceinline__ bool is_zero(f64 x) {
  return x == 0.0;
}
__device__ __forceinline__ bool is_zero(s8 x) {
  return x == 0;
}
__device__ __forceinline__ bool is_zero(u8 x) {
  return x == 0;
}
__device__ __forceinline__ bool is_zero(s32 x) {
  return x == 0;
}
__device__ __forceinline__ bool is_zero(b8 x) {
  return x.bits == 0;
}
__device__ __forceinline__ bool is_zero(c64 x) {
  return x.re == 0.0f && x.im == 0.0f;
}
__device__ __forceinline__ bool is_zero(c128 x) {
  return x.re == 0.0 && x.im == 0.0;
}

// The zero of any type, written as its bytes.
template <typename E>
__device__ __forceinline__ E zero_of() {
  E x;
  unsigned char* bytes = reinterpret_cast<unsigned char*>(&x);
#pragma unroll
  for (int i = 0; i < int(sizeof(E)); ++i) bytes[i] = 0;
  return x;
}

}  // namespace sparsegpu
