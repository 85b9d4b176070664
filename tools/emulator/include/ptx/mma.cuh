// mma.m16n8 of 32 bytes of k, m8n8k4 and m16n8k8 (float64) on the host, by their definition
// (cuda_src/ptx/mma.cuh); the first is summed in float64, of int8 as integers.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

template <typename E>
struct Mma {
  static constexpr int k = 32 / sizeof(E);
};

// To TF32: to the nearest, ties away from zero. The tensor cores cut off what it lacks.
inline unsigned to_tf32(float x) {
  return (unsigned(__float_as_int(x)) + 0x1000) & ~0x1FFFu;
}

// Element i of a word.
template <typename E>
typename Acc<E>::type element_of(unsigned word, int i) {
  if constexpr (sizeof(E) == 4) word &= ~0x1FFFu;
  E x;
  std::memcpy(&x, reinterpret_cast<const char*>(&word) + i * sizeof(E), sizeof(E));
  return to_acc(x);
}

struct Fragments {
  unsigned a[4], b[2];
};
// a's element k of row g + 8 r, b's of column g, from the fragments of a warp.
template <typename E>
auto element_of_a(const Fragments* warp, int g, int r, int k) {
  const int byte = k * int(sizeof(E));
  return element_of<E>(warp[4 * g + byte % 16 / 4].a[r + byte / 16 * 2], byte % 4 / int(sizeof(E)));
}
template <typename E>
auto element_of_b(const Fragments* warp, int g, int k) {
  const int byte = k * int(sizeof(E));
  return element_of<E>(warp[4 * g + byte % 16 / 4].b[byte / 16], byte % 4 / int(sizeof(E)));
}

struct FragmentsF64 {
  double a, b;
};
struct LargeFragmentsF64 {
  double a[4], b[2];
};
inline void mma_f64_m8n8k4(double (&d)[2], double a, double b) {
  typedef emulator::Exchange<FragmentsF64> Warp;
  const FragmentsF64* warp = Warp::post({a, b});
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 4; ++k)
      d[i] = std::fma(warp[4 * g + k].a, warp[4 * (2 * t + i) + k].b, d[i]);
  Warp::leave();
}

inline void mma_f64_m16n8k8(double (&d)[4], const double (&a)[4], const double (&b)[2]) {
  typedef emulator::Exchange<LargeFragmentsF64> Warp;
  const LargeFragmentsF64* warp = Warp::post({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 8; ++k)
      d[i] = std::fma(warp[4 * g + k % 4].a[k / 4 * 2 + i / 2],
                      warp[4 * (2 * t + i % 2) + k % 4].b[k / 4], d[i]);
  Warp::leave();
}

template <typename E, typename A>
void mma(A (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  typedef emulator::Exchange<Fragments> Warp;
  const Fragments* warp = Warp::post({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i) {
    double sum = double(d[i]);
    for (int k = 0; k < Mma<E>::k; ++k)
      sum += double(element_of_a<E>(warp, g, i / 2, k)) *
             double(element_of_b<E>(warp, 2 * t + i % 2, k));
    d[i] = A(sum);
  }
  Warp::leave();
}

// As many terms again are zero.
template <typename E>
void mma_half(f32 (&d)[4], const unsigned (&a)[2], unsigned b) {
  mma<E>(d, {a[0], a[1], 0, 0}, {b, 0});
}

// To ten bits of the fraction, ties away from zero.

}  // namespace sparsegpu
