// Philox4x32-10: twin of sparsegpu/_philox.py (Salmon et al., SC 2011).
#pragma once

namespace sparsegpu {

// The four words of 64-bit counters that have the same high half (the high half of the 128-bit ones
// is zero) under a 64-bit key: what two rounds make of that half is computed once.
struct PhiloxCounters {
  static constexpr unsigned FACTOR0 = 0xD2511F53, FACTOR1 = 0xCD9E8D57;
  static constexpr unsigned STEP0 = 0x9E3779B9, STEP1 = 0xBB67AE85;
  unsigned k0, k1;
  uint2 of_high;  // the second round's product of word 0

  // The halves of a product: x low, y high.
  static __device__ __forceinline__ uint2 multiply(unsigned factor, unsigned word) {
    const unsigned long long product = (unsigned long long)factor * word;
    uint2 halves;
    memcpy(&halves, &product, 8);
    return halves;
  }
  __device__ __forceinline__ PhiloxCounters(unsigned high, unsigned long long key)
      : k0(unsigned(key)), k1(unsigned(key >> 32)), of_high(multiply(FACTOR0, high ^ k0)) {}
  __device__ __forceinline__ uint4 operator()(unsigned low) const {
    // Rounds 1 and 2: words 2 and 3 are zero before them, word 1 after the first.
    unsigned key0 = k0 + STEP0, key1 = k1 + STEP1;
    const uint2 of_low = multiply(FACTOR0, low), of_2 = multiply(FACTOR1, of_low.y ^ k1);
    uint4 c = make_uint4(of_2.y ^ key0, of_2.x, of_high.y ^ of_low.x ^ key1, of_high.x);
#pragma unroll
    for (int round = 2; round < 10; ++round) {
      key0 += STEP0, key1 += STEP1;
      const uint2 p = multiply(FACTOR0, c.x), q = multiply(FACTOR1, c.z);
      c = make_uint4(q.y ^ c.y ^ key0, q.x, p.y ^ c.w ^ key1, p.x);
    }
    return c;
  }
};

__device__ __forceinline__ uint4 philox4x32(unsigned long long counter, unsigned long long key) {
  return PhiloxCounters(unsigned(counter >> 32), key)(unsigned(counter));
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
