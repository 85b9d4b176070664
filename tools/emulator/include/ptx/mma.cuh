// mma.m16n8k16 on the host, by its definition (cuda_src/ptx/mma.cuh); summed in float64.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

// Element i of a word of two.
template <typename E>
float element_of(unsigned word, int i) {
  const uint16_t bits = uint16_t(word >> 16 * i);
  E x;
  std::memcpy(&x, &bits, 2);
  return to_acc(x);
}

struct Fragments {
  unsigned a[4], b[2];
};
// a's element k of row g + 8 r, b's of column g, from the fragments of a warp.
template <typename E>
float element_of_a(const Fragments* warp, int g, int r, int k) {
  return element_of<E>(warp[4 * g + k % 8 / 2].a[r + k / 8 * 2], k % 2);
}
template <typename E>
float element_of_b(const Fragments* warp, int g, int k) {
  return element_of<E>(warp[4 * g + k % 8 / 2].b[k / 8], k % 2);
}

template <typename E>
void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  typedef emulator::Exchange<Fragments> Warp;
  const Fragments* warp = Warp::post({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int i = 0; i < 4; ++i) {
    double sum = d[i];
    for (int k = 0; k < 16; ++k)
      sum += double(element_of_a<E>(warp, g, i / 2, k)) * element_of_b<E>(warp, 2 * t + i % 2, k);
    d[i] = float(sum);
  }
  Warp::leave();
}

// To ten bits of the fraction, ties away from zero.
inline unsigned to_tf32(float x) {
  const unsigned bits = unsigned(__float_as_int(x));
  return std::isfinite(x) ? (bits + 0x1000) & ~0x1fffu : bits;
}

}  // namespace sparsegpu
