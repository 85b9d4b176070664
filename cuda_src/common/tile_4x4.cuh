// 4 x 4 tiles of 1- and 2-byte values in registers: the greedy choice, and both orientations.
//
// Every value has a 16-bit lane of a word. Flags of a tile are 16 bits, bit 4 * row + column.
#pragma once

#include "common/semi_structured.cuh"
#include "common/types.cuh"

namespace sparsegpu {

// Byte n of the result is byte (selector >> 4 n & 7) of the eight bytes of high:low; where bit 3 of
// the selector's digit is set, eight copies of that byte's sign (PTX ISA, prmt).
__device__ __forceinline__ u32 permute(u32 low, u32 high, u32 selector) {
  u32 out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selector));
  return out;
}

// 1 in each lane that has a bit set.
__device__ __forceinline__ u32 any_bit(u32 lanes) {
  return __vminu2(lanes, 0x00010001u);
}

// The same 16 bits in both lanes.
constexpr u32 both_lanes(u32 bits) {
  return bits | bits << 16;
}

// How a 4 x 4 tile is pruned: the names of sparsegpu's algorithms, or by a given mask.
enum Rule { largest_abs_values, largest_values, causal1122, given_mask };

struct Tile4x4 {
  u32 row[4][2];  // columns 0 and 1, columns 2 and 3
};

// The bits of a lane that make a value nonzero, and those of its largest number (NaN is beyond).
template <typename E>
struct Lane {};
template <>
struct Lane<f16> {
  static constexpr u32 magnitude = 0x7fff, largest = 0x7c00;
};
template <>
struct Lane<bf16> {
  static constexpr u32 magnitude = 0x7fff, largest = 0x7f80;
};
template <>
struct Lane<e4m3> {
  static constexpr u32 magnitude = 0x7f, largest = 0x7e;
};
template <>
struct Lane<s8> {
  static constexpr u32 magnitude = 0xff;
};

// lane_keys<ABS>(lanes, E()): in each lane a signed integer that orders like the values of type E
// (ABS: like their magnitudes): -0.0 equals 0.0, and every NaN has the same key, below all others.
template <bool ABS, typename E>
__device__ __forceinline__ u32 lane_keys(u32 lanes, E) {
  constexpr u32 kMagnitude = Lane<E>::magnitude, kSign = kMagnitude + 1;
  u32 size = lanes & both_lanes(kMagnitude);
  u32 nan = (size + both_lanes(kMagnitude - Lane<E>::largest)) / kSign & 0x00010001u;
  if constexpr (ABS) return (size + 0x00010001u) & ~(nan * 0xffffu);
  // From 1 to 2 * kSign - 1: no lane borrows from the next.
  u32 negative = (lanes / kSign & 0x00010001u) * 0xffffu;
  u32 keys = both_lanes(kSign) + size - 2 * (size & negative);
  return (keys & ~(nan * 0xffffu)) ^ (kSign == 0x8000u ? both_lanes(kSign) : 0);
}
template <bool ABS>
__device__ __forceinline__ u32 lane_keys(u32 lanes, s8) {
  u32 negative = (lanes >> 7 & 0x00010001u) * 0xffffu;
  if constexpr (ABS) return lanes + (negative & 0x01000100u) - 2 * (lanes & negative);
  return lanes ^ 0x00800080u;
}
// max(|x|, -1) is a NaN's -1 and the others' magnitude, and the bits of those order as they are:
// one instruction for two values.
template <>
__device__ __forceinline__ u32 lane_keys<true, bf16>(u32 lanes, bf16) {
  const u32 minus_one = 0xbf80bf80u;
  __nv_bfloat162 x = __hmax2(__habs2(reinterpret_cast<const __nv_bfloat162&>(lanes)),
                             reinterpret_cast<const __nv_bfloat162&>(minus_one));
  return reinterpret_cast<const u32&>(x);
}
template <>
__device__ __forceinline__ u32 lane_keys<true, f16>(u32 lanes, f16) {
  const u32 minus_one = 0xbc00bc00u;
  __half2 x = __hmax2(__habs2(reinterpret_cast<const __half2&>(lanes)),
                      reinterpret_cast<const __half2&>(minus_one));
  return reinterpret_cast<const u32&>(x);
}

// Comparisons and logic saturate one pipe here, so the smaller of two is mostly computed as their
// sum less the larger one, by multiply-adds (integer overflow wraps and cancels). `one` is 1,
// opaque to the compiler.
__device__ __forceinline__ void larger_first(int& a, int& b, u32 one) {
  u32 sum = u32(a) * one + u32(b);
  a = max(a, b);
  b = int(sum - u32(a) * one);
}

// Sort 16 keys, the largest first: Green's network of 60 comparisons (Knuth, The Art of Computer
// Programming 3, section 5.3.4).
__device__ __forceinline__ void sort(int (&key)[16]) {
  u32 one = blockDim.y;
  constexpr unsigned char kNetwork[60][2] = {
      {0, 1},  {2, 3},   {4, 5},  {6, 7},   {8, 9},   {10, 11}, {12, 13}, {14, 15}, {0, 2},
      {1, 3},  {4, 6},   {5, 7},  {8, 10},  {9, 11},  {12, 14}, {13, 15}, {0, 4},   {1, 5},
      {2, 6},  {3, 7},   {8, 12}, {9, 13},  {10, 14}, {11, 15}, {0, 8},   {1, 9},   {2, 10},
      {3, 11}, {4, 12},  {5, 13}, {6, 14},  {7, 15},  {5, 10},  {6, 9},   {3, 12},  {13, 14},
      {4, 8},  {7, 11},  {1, 2},  {1, 4},   {7, 13},  {2, 8},   {11, 14}, {2, 4},   {5, 6},
      {9, 10}, {11, 13}, {3, 8},  {7, 12},  {6, 8},   {10, 12}, {3, 5},   {7, 9},   {3, 4},
      {5, 6},  {7, 8},   {9, 10}, {11, 12}, {6, 7},   {8, 9}};
#pragma unroll
  for (int n = 0; n < 60; ++n) {
    int &a = key[kNetwork[n][0]], &b = key[kNetwork[n][1]];
    if (n % 4 != 3) {
      larger_first(a, b, one);
    } else {  // balances the two pipes
      int larger = max(a, b);
      b = min(a, b);
      a = larger;
    }
  }
}

// The flags of what a tile keeps: its values are visited in order, and one is kept while its row
// and its column have room. (Ties: the lower row-major index.)
//
// Below a value's 16-bit key come its row and its column, one bit each, such that a lower index is
// the larger, and the exponent of the float 2**index: a sorted key says where it is from, and the
// floats of what is kept add up to its flags, again by the pipe that is not saturated.
template <Rule KEEP, typename E>
__device__ __forceinline__ u32 choose(const Tile4x4& tile) {
  // In registers: immediates would be moved by the saturated pipe. threadIdx.y is 0.
  u32 upwards = 0x10000u + threadIdx.y, upper = 0x3254u + threadIdx.y;
  int key[16];
#pragma unroll
  for (int i = 0; i < 16; i += 2) {
    u32 pair = lane_keys<KEEP == largest_abs_values>(tile.row[i / 4][i % 4 / 2], E());
    u32 left = (0x80u >> i / 4 | 0x8u >> i % 4) << 8 | (127 + i);
    u32 right = (0x80u >> i / 4 | 0x8u >> (i + 1) % 4) << 8 | (128 + i);
    key[i] = int(pair * upwards + left);
    key[i + 1] = int(permute(pair, right, upper));
  }
  sort(key);
  // Bits 8 to 15: rows and columns with one kept value or more, and those without room.
  u32 some = KEEP == causal1122 ? 0xc000u : 0, full = 0;
  f32 kept = 0x1p23f;  // whose lowest mantissa bits count integers
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (u32(key[i]) & full) continue;
    full |= some & u32(key[i]);
    some |= u32(key[i]) & 0xff00u;
    kept += fabsf(__uint_as_float(u32(key[i]) << 23));
  }
  return __float_as_uint(kept);
}

// Set what is not kept to zero.
__device__ __forceinline__ void keep(Tile4x4& tile, u32 kept) {
#pragma unroll
  for (int i = 0; i < 16; i += 2)  // the two flags become signs of bytes, and these the mask
    tile.row[i / 4][i % 4 / 2] &=
        permute(kept << (7 - i % 8), kept << (6 - i % 8), i < 8 ? 0xcc88u : 0xdd99u);
}

// The flags of the nonzero values.
template <typename E>
__device__ __forceinline__ u32 nonzero(const Tile4x4& tile) {
  u32 spread = 0;  // even columns in the low half, odd ones in the high half
#pragma unroll
  for (int i = 0; i < 16; i += 2)
    spread += any_bit(tile.row[i / 4][i % 4 / 2] & both_lanes(Lane<E>::magnitude)) * (1u << i);
  return (spread & 0x5555u) | spread >> 15;
}

__device__ __forceinline__ Tile4x4 transposed(const Tile4x4& tile) {
  Tile4x4 out;
#pragma unroll
  for (int c = 0; c < 4; ++c)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      out.row[c][h] =
          permute(tile.row[2 * h][c / 2], tile.row[2 * h + 1][c / 2], c % 2 ? 0x7632u : 0x5410u);
  return out;
}
__device__ __forceinline__ u32 transposed(u32 flags) {
  u32 swap = (flags ^ flags >> 3) & 0x0a0au;
  flags ^= swap ^ swap << 3;
  swap = (flags ^ flags >> 6) & 0x00ccu;
  return flags ^ swap ^ swap << 6;
}

// Bit 4 * row is set where a row of the tile has more than two flags.
__device__ __forceinline__ u32 crowded(u32 f) {
  u32 a = f, b = f >> 1, c = f >> 2, d = f >> 3;
  return ((a & b & (c | d)) | (c & d & (a | b))) & 0x1111u;
}

// Compress the rows of a tile: two lanes each in `kept`, their codes i | j << 2 in the bytes of the
// result. Flags 0 and 1 set: columns (0, 1); neither: (2, 3); else the set one of the two, and 3 if
// flag 3 is set, else 2. So these three flags choose among the eight bytes of a table, for four
// rows at a time.
__device__ __forceinline__ u32 compress(u32 (&kept)[4], const Tile4x4& tile, u32 flags) {
  u32 index = ((flags & 0x3333u) | (flags >> 1 & 0xccccu)) & 0x7777u;
  u32 first = permute(0x10321054u, 0x10321054u, index);
  u32 second = permute(0x32545476u, 0x32767676u, index);
#pragma unroll
  for (int r = 0; r < 4; ++r)
    kept[r] = permute(tile.row[r][0], tile.row[r][1], permute(first, second, 0x40 + 0x11 * r));
  return permute(0x0409080eu, 0x040d0c0eu, index);
}

// Two neighbouring tiles: four rows of eight values. `wide`: `from` and `row` are aligned to it.
template <typename E>
__device__ __forceinline__ void load(Tile4x4 (&tile)[2], const E* from, long long row,
                                     long long column, bool wide) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    u32 word[2 * sizeof(E)] = {};
    if (wide) {
      if constexpr (sizeof(E) == 2) {
        uint4 v = *reinterpret_cast<const uint4*>(from + r * row);
        word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
      } else {
        uint2 v = *reinterpret_cast<const uint2*>(from + r * row);
        word[0] = v.x, word[1] = v.y;
      }
    } else {
      typedef typename Bits<sizeof(E)>::type Value;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        u32 v = *reinterpret_cast<const Value*>(from + r * row + c * column);
        word[c * sizeof(E) / 4] |= v << (8 * (c * sizeof(E) % 4));
      }
    }
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      if constexpr (sizeof(E) == 2) {
        tile[t].row[r][0] = word[2 * t];
        tile[t].row[r][1] = word[2 * t + 1];
      } else {
        tile[t].row[r][0] = permute(word[t], 0, 0x4140);
        tile[t].row[r][1] = permute(word[t], 0, 0x4342);
      }
    }
  }
}

// The two kept values of a tile's row as they are stored; of two neighbouring tiles.
__device__ __forceinline__ void store(u32* to, u32 kept) {
  *to = kept;
}
__device__ __forceinline__ void store(u16* to, u32 kept) {
  *to = u16(permute(kept, 0, 0x20));
}
__device__ __forceinline__ void store(u16* to, u32 left, u32 right) {
  *reinterpret_cast<uint2*>(to) = make_uint2(left, right);
}
__device__ __forceinline__ void store(unsigned char* to, u32 left, u32 right) {
  *reinterpret_cast<u32*>(to) = permute(left, right, 0x6420);
}

// Two neighbouring tiles back to rows that are aligned to eight values.
template <typename E>
__device__ __forceinline__ void store(E* to, const Tile4x4 (&tile)[2], long long row) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const u32(&left)[2] = tile[0].row[r], (&right)[2] = tile[1].row[r];
    if constexpr (sizeof(E) == 2)
      *reinterpret_cast<uint4*>(to + r * row) = make_uint4(left[0], left[1], right[0], right[1]);
    else
      *reinterpret_cast<uint2*>(to + r * row) =
          make_uint2(permute(left[0], left[1], 0x6420), permute(right[0], right[1], 0x6420));
  }
}

}  // namespace sparsegpu
