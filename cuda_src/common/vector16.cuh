// Vectorised access: sixteen bytes at once, also from unaligned addresses, squares of them
// transposed in registers, and elements stored by as few instructions as their alignment allows.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

struct alignas(16) Vec16 {
  unsigned words[4];
};

// Elements of type E in sixteen bytes.
template <typename E>
constexpr int PER_VEC16 = 16 / int(sizeof(E));

// Sixteen bytes from an address of any alignment: `load` starts the loads, so that many can be in
// flight, and `get` shifts their bytes into place. One or two aligned vectors are loaded if they
// lie within the span [low, high) of addresses; otherwise single bytes, and zeros outside of the
// span.
struct UnalignedVec16 {
  Vec16 here, next;

  static __device__ __forceinline__ int shift(const unsigned char* from) {
    return int(reinterpret_cast<unsigned long long>(from) % 16);
  }
  template <typename Span>
  static __device__ __forceinline__ bool whole(const unsigned char* from, const Span& span) {
    const unsigned char* first = from - shift(from);
    return first >= span.low && first + (shift(from) ? 32 : 16) <= span.high;
  }

  template <typename Span>
  __device__ __forceinline__ void load(const void* address, const Span& span) {
    const unsigned char* from = static_cast<const unsigned char*>(address);
    const Vec16* first = reinterpret_cast<const Vec16*>(from - shift(from));
    if (whole(from, span)) here = first[0];
    if (whole(from, span) && shift(from)) next = first[1];
  }

  template <typename Span>
  __device__ __forceinline__ Vec16 get(const void* address, const Span& span) const {
    const unsigned char* from = static_cast<const unsigned char*>(address);
    const int by = shift(from);
    Vec16 vector = {};
    if (whole(from, span)) {
      unsigned w[6];  // shifted by 8 bytes, by 4, by up to 3
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        const unsigned near = i < 4 ? here.words[i] : next.words[i - 4];
        const unsigned far = i < 2 ? here.words[i + 2] : next.words[i - 2];
        w[i] = by & 8 ? far : near;
      }
#pragma unroll
      for (int i = 0; i < 5; ++i) w[i] = by & 4 ? w[i + 1] : w[i];
#pragma unroll
      for (int i = 0; i < 4; ++i) vector.words[i] = __funnelshift_r(w[i], w[i + 1], 8 * (by & 3));
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i)
        if (from + i >= span.low && from + i < span.high)
          vector.words[i / 4] |= unsigned(from[i]) << 8 * (i % 4);
    }
    return vector;
  }
};

// Vector r of the transpose of a square: its element j is element r of vector j.
template <typename E>
__device__ __forceinline__ Vec16 transposed(const Vec16 (&square)[PER_VEC16<E>], int r) {
  constexpr int SIZE = sizeof(E);
  static_assert(SIZE == 1 || SIZE == 2 || SIZE == 4 || SIZE == 8 || SIZE == 16, "powers of two");
  const int w = r * SIZE / 4;  // where element r is
  Vec16 vector;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (SIZE >= 4) {
      vector.words[i] = square[i * 4 / SIZE].words[w + i % (SIZE / 4)];
    } else if constexpr (SIZE == 2) {
      vector.words[i] = __byte_perm(square[2 * i].words[w], square[2 * i + 1].words[w],
                                    r % 2 == 0 ? 0x5410 : 0x7632);
    } else {
      const unsigned pairs = r % 4 < 2 ? 0x5140 : 0x7362;
      const unsigned low = __byte_perm(square[4 * i].words[w], square[4 * i + 1].words[w], pairs);
      const unsigned high =
          __byte_perm(square[4 * i + 2].words[w], square[4 * i + 3].words[w], pairs);
      vector.words[i] = __byte_perm(low, high, r % 2 == 0 ? 0x5410 : 0x7632);
    }
  }
  return vector;
}

// N elements of a row, stored together: `to` is aligned to 16 bytes, or to 8 where E has one byte.
template <typename E, int N>
struct alignas(sizeof(E) == 1 ? 8 : 16) Vec {
  E value[N];
  __device__ __forceinline__ void store(E* to) const {
    typedef typename Conditional<sizeof(E) == 1, uint2, uint4>::type Word;
#pragma unroll
    for (int w = 0; w < int(sizeof(value) / sizeof(Word)); ++w)
      reinterpret_cast<Word*>(to)[w] = reinterpret_cast<const Word*>(value)[w];
  }
};

// The unsigned word of SIZE bytes, which one access moves: 1, 2, 4, 8 or 16.
template <int SIZE>
struct Word {
  typedef typename Conditional<SIZE == 16, uint4, uint2>::type Wide;
  typedef typename Conditional<SIZE == 1, unsigned char, unsigned short>::type Narrow;
  typedef typename Conditional<SIZE == 4, unsigned, Narrow>::type AtMost4;
  typedef typename Conditional<(SIZE > 4), Wide, AtMost4>::type type;
};

}  // namespace sparsegpu
