// wgmma on the host, for operands swizzled by 128 bytes (cuda_src/ptx/wgmma.cuh).
// Products are made at once: what a kernel reads before it waits for them is not noticed.
#pragma once

#include "ptx/bulk_tensor.cuh"
#include "ptx/mma.cuh"

namespace sparsegpu {

template <int Width>
unsigned long long smem_descriptor(unsigned address, int stride, int leading) {
  static_assert(Width == 128, "the emulator has this swizzle alone");
  if (address >= emulator::SHARED_BYTES) emulator::fail("a descriptor beyond shared memory");
  return 1ull << 62 | (unsigned long long)(stride >> 4) << 32 |
         (unsigned long long)(leading >> 4) << 16 | address >> 4;
}

inline void wgmma_fence() {
  emulator::sync_warp();
}
inline void wgmma_commit() {}
inline unsigned long long smem_further(unsigned long long descriptor, int bytes) {
  return descriptor + (bytes >> 4);
}
template <int N>
void wgmma_wait() {}
template <int N>
void wgmma_wait_behind(float) {}
template <int Registers>
void setmaxnreg_dec() {}
template <int Registers>
void setmaxnreg_inc() {}

// Element k of row (of b: column) n of an operand in shared memory.
template <typename E, bool MN_MAJOR>
typename Acc<E>::type operand_element(unsigned long long descriptor, int n, int k) {
  const unsigned start = (descriptor & 0x3FFF) << 4;
  const unsigned leading = (descriptor >> 16 & 0x3FFF) << 4;
  const unsigned stride = (descriptor >> 32 & 0x3FFF) << 4;
  unsigned at = MN_MAJOR ? start + k / 8 * stride + k % 8 * 128 + n % 64 * 2 + n / 64 * leading
                         : start + n / 8 * stride + n % 8 * 128 + k * unsigned(sizeof(E));
  at ^= (at >> 7 & 7) << 4;
  unsigned word = 0;
  std::memcpy(&word, shared_pointer(at), sizeof(E));
  return element_of<E>(word, 0);
}

template <typename E, bool B_MN_MAJOR, typename A, int N>
void add_products(A (&d)[N], const A (&a)[2][Mma<E>::k], unsigned long long b) {
  for (int i = 0; i < N; ++i) {
    const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    double sum = double(d[i]);
    for (int k = 0; k < Mma<E>::k; ++k)
      sum += double(a[i / 2 % 2][k]) * double(operand_element<E, B_MN_MAJOR>(b, column, k));
    d[i] = A(sum);
  }
}

template <typename E, bool A_MN_MAJOR, bool B_MN_MAJOR, typename A, int N>
void wgmma(A (&d)[N], unsigned long long a, unsigned long long b) {
  const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
  A rows[2][Mma<E>::k];
  for (int r = 0; r < 2; ++r)
    for (int k = 0; k < Mma<E>::k; ++k)
      rows[r][k] = operand_element<E, A_MN_MAJOR>(a, row + 8 * r, k);
  add_products<E, B_MN_MAJOR>(d, rows, b);
}

template <typename E, bool B_MN_MAJOR, typename A, int N>
void wgmma(A (&d)[N], const unsigned (&a)[4], unsigned long long b) {
  typedef emulator::Exchange<Fragments> Warp;
  const Fragments* warp = Warp::post({{a[0], a[1], a[2], a[3]}, {0, 0}});
  const int g = threadIdx.x % 32 / 4;
  A rows[2][Mma<E>::k];
  for (int r = 0; r < 2; ++r)
    for (int k = 0; k < Mma<E>::k; ++k) rows[r][k] = element_of_a<E>(warp, g, r, k);
  Warp::leave();
  add_products<E, B_MN_MAJOR>(d, rows, b);
}

}  // namespace sparsegpu
