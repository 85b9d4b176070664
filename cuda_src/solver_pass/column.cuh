// The numbers of one column of a solver, and what becomes of the column
// (sparsegpu/engines/_solver_steps, the definition of all steps).
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

constexpr int GOES_ON = 1, ITERATED = 2, CONVERGED = 3, EXHAUSTED = 4;
constexpr int NORM = 0, TOLERANCE = 1;

// Wide<E>::type: of the numbers, and of dot products of E.
template <typename E>
struct Wide {
  typedef f64 type;
};
template <typename R>
struct Wide<Complex<R>> {
  typedef c128 type;
};

__device__ __forceinline__ f64 widened(f32 x) {
  return x;
}
__device__ __forceinline__ f64 widened(f64 x) {
  return x;
}
template <typename R>
__device__ __forceinline__ c128 widened(Complex<R> x) {
  return {f64(x.re), f64(x.im)};
}

template <typename E>
struct Narrowed {
  static __device__ __forceinline__ E from(f64 x) { return E(x); }
};
template <typename R>
struct Narrowed<Complex<R>> {
  static __device__ __forceinline__ Complex<R> from(c128 x) { return {R(x.re), R(x.im)}; }
};

__device__ __forceinline__ f64 conjugate(f64 x) {
  return x;
}
__device__ __forceinline__ c128 conjugate(c128 x) {
  return {x.re, -x.im};
}

__device__ __forceinline__ f64 real_of(f64 x) {
  return x;
}
__device__ __forceinline__ f64 real_of(c128 x) {
  return x.re;
}

__device__ __forceinline__ f64 modulus(f64 x) {
  return fabs(x);
}
__device__ __forceinline__ f64 modulus(c128 x) {
  return hypot(x.re, x.im);
}

__device__ __forceinline__ bool is_finite(f64 x) {
  return x - x == 0;
}
__device__ __forceinline__ bool is_finite(c128 x) {
  return is_finite(x.re) && is_finite(x.im);
}

__device__ __forceinline__ f64 over(f64 a, f64 b) {
  return a / b;
}
// Smith's division: the larger part of b divides, so that nothing overflows on the way.
__device__ __forceinline__ c128 over(c128 a, c128 b) {
  if (fabs(b.re) >= fabs(b.im)) {
    const f64 ratio = b.im / b.re, by = b.re + b.im * ratio;
    return {(a.re + a.im * ratio) / by, (a.im - a.re * ratio) / by};
  }
  const f64 ratio = b.re / b.im, by = b.re * ratio + b.im;
  return {(a.re * ratio + a.im) / by, (a.im * ratio - a.re) / by};
}

template <typename W>
struct Column {
  W* numbers;
  long long stride;

  __device__ __forceinline__ W& operator[](int row) const { return numbers[row * stride]; }
  __device__ __forceinline__ f64 real(int row) const { return real_of((*this)[row]); }
};

// Column ``column`` of a table of so many columns.
template <typename W>
__device__ __forceinline__ Column<W> column_of(W* numbers, long long columns, long long column) {
  return {numbers + column, columns};
}

// After a pass whose numbers no step reads.
struct NoStep {
  static constexpr bool none = true, last = false;
  template <typename W>
  static __device__ int run(const Column<W>&) {
    return GOES_ON;
  }
};

}  // namespace sparsegpu
