// Sixteen bytes at a time: read from any address, and squares of them transposed in registers.
#pragma once

struct alignas(16) Piece {
  unsigned words[4];
};

// Elements of type T in a piece.
template <typename T>
constexpr int PER_PIECE = 16 / int(sizeof(T));

// Sixteen bytes at an address of any alignment: `load` starts the loads, so that many can be on
// their way, and `get` shifts what they brought. Whole pieces are loaded, of which every byte lies
// in a span (low, high: of its first byte, and behind its last); where there is none, single bytes,
// and zeros beyond.
struct LoosePiece {
  Piece here, next;

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
    const Piece* first = reinterpret_cast<const Piece*>(from - shift(from));
    if (whole(from, span)) here = first[0];
    if (whole(from, span) && shift(from)) next = first[1];
  }

  template <typename Span>
  __device__ __forceinline__ Piece get(const void* address, const Span& span) const {
    const unsigned char* from = static_cast<const unsigned char*>(address);
    const int by = shift(from);
    Piece piece = {};
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
      for (int i = 0; i < 4; ++i) piece.words[i] = __funnelshift_r(w[i], w[i + 1], 8 * (by & 3));
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i)
        if (from + i >= span.low && from + i < span.high)
          piece.words[i / 4] |= unsigned(from[i]) << 8 * (i % 4);
    }
    return piece;
  }
};

// Piece r of the transpose of a square: its element j is element r of piece j.
template <typename T>
__device__ __forceinline__ Piece turned(const Piece (&square)[PER_PIECE<T>], int r) {
  constexpr int SIZE = sizeof(T);
  static_assert(SIZE == 1 || SIZE == 2 || SIZE == 4 || SIZE == 8 || SIZE == 16, "powers of two");
  const int w = r * SIZE / 4;  // where element r is
  Piece piece;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (SIZE >= 4) {
      piece.words[i] = square[i * 4 / SIZE].words[w + i % (SIZE / 4)];
    } else if constexpr (SIZE == 2) {
      piece.words[i] = __byte_perm(square[2 * i].words[w], square[2 * i + 1].words[w],
                                   r % 2 == 0 ? 0x5410 : 0x7632);
    } else {
      const unsigned pairs = r % 4 < 2 ? 0x5140 : 0x7362;
      const unsigned low = __byte_perm(square[4 * i].words[w], square[4 * i + 1].words[w], pairs);
      const unsigned high =
          __byte_perm(square[4 * i + 2].words[w], square[4 * i + 3].words[w], pairs);
      piece.words[i] = __byte_perm(low, high, r % 2 == 0 ? 0x5410 : 0x7632);
    }
  }
  return piece;
}
