// ldmatrix on the host, by its definition (cuda_src/ptx/ldmatrix.cuh).
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

template <int MATRICES, bool TRANS>
void load_matrices(unsigned* words, unsigned address) {
  const int lane = threadIdx.x % 32;
  if (lane < 8 * MATRICES && address % 16 != 0) emulator::fail("an ldmatrix that is not aligned");
  typedef emulator::Exchange<unsigned> Addresses;
  const unsigned* addresses = Addresses::post(address);
  for (int j = 0; j < MATRICES; ++j) {
    uint16_t halves[2];
    for (int i = 0; i < 2; ++i) {
      const int row = TRANS ? lane % 4 * 2 + i : lane / 4;
      const int column = TRANS ? lane / 4 : lane % 4 * 2 + i;
      std::memcpy(&halves[i], shared_pointer(addresses[8 * j + row]) + 2 * column, 2);
    }
    words[j] = halves[0] | unsigned(halves[1]) << 16;
  }
  Addresses::leave();
}

inline void ldmatrix_x1(unsigned& word, unsigned address) {
  load_matrices<1, false>(&word, address);
}
inline void ldmatrix_x2(unsigned (&words)[2], unsigned address) {
  load_matrices<2, false>(words, address);
}
inline void ldmatrix_x2_trans(unsigned (&words)[2], unsigned address) {
  load_matrices<2, true>(words, address);
}
inline void ldmatrix_x4(unsigned (&words)[4], unsigned address) {
  load_matrices<4, false>(words, address);
}
inline void ldmatrix_x4(unsigned (&words)[4], const void* shared) {
  ldmatrix_x4(words, shared_address(shared));
}
inline void ldmatrix_x4_trans(unsigned (&words)[4], unsigned address) {
  load_matrices<4, true>(words, address);
}
inline void ldmatrix_x4_trans(unsigned (&words)[4], const void* shared) {
  ldmatrix_x4_trans(words, shared_address(shared));
}

}  // namespace sparsegpu
