// Philox4x32-10: twin of sparsegpu/_philox.py (Salmon et al., SC 2011).
#pragma once

namespace sparsegpu {

// The four words of a 64-bit counter (the high half of the 128-bit one is zero) under a 64-bit key.
__device__ __forceinline__ uint4 philox4x32(unsigned long long counter, unsigned long long seed) {
  unsigned c0 = unsigned(counter), c1 = unsigned(counter >> 32), c2 = 0, c3 = 0;
  unsigned k0 = unsigned(seed), k1 = unsigned(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    unsigned low0 = 0xD2511F53u * c0, high0 = __umulhi(0xD2511F53u, c0);
    unsigned low1 = 0xCD9E8D57u * c2, high1 = __umulhi(0xCD9E8D57u, c2);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return make_uint4(c0, c1, c2, c3);
}

// The word that decides over score number `index`: word index % 4 of counter index / 4.
__device__ __forceinline__ unsigned philox_word(unsigned long long index, unsigned long long seed) {
  uint4 words = philox4x32(index >> 2, seed);
  unsigned low = index & 1 ? words.y : words.x;
  unsigned high = index & 1 ? words.w : words.z;
  return index & 2 ? high : low;
}

// The highest word that dropout with probability p > 0 drops: word / 2**32 < p, exactly.
__device__ __forceinline__ unsigned highest_dropped(double p) {
  return unsigned((unsigned long long)ceil(p * 4294967296.0) - 1);
}

}  // namespace sparsegpu
