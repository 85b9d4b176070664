// Dense to 2:4 in one pass: packed values, metadata in CUTLASS's order, and whether a group holds
// more nonzeros than it keeps (`failed`, which the host may own), or which is the first (`first`).
//
//   BYTES        1, 2 or 4: size of a value
//   SIGNED_ZERO  1 where the sign bit alone is -0.0 (floats), 0 for int8
//
// A block takes 32 rows of 16 metadata columns (512 bytes of each row); a thread four times half a
// metadata element: 16 bytes in, 8 bytes out. The metadata meets in shared memory, so that each
// chunk of the scattered order is written as one contiguous run.

#include "common/semi_structured.cuh"
#include "common/tile24.cuh"

typedef Format24<BYTES> Format;
typedef Bits<BYTES>::type Value;
typedef Meta24<BYTES>::type Meta;
typedef Bits<sizeof(Meta) / 2>::type Half;

constexpr int kRows = 32, kColumns = 16, kThreads = 256;
constexpr int kPieces = kRows * kColumns * 2 / kThreads;
constexpr int kRowStep = kThreads / (2 * kColumns);

// Pieces whose groups are compressed together: the four rows of a Tile have as many groups.
constexpr int kTogether = BYTES == 2 ? 2 : 1;

// Compress pieces; in the result, bit 4 * group is set for a group that keeps too little.
__device__ __forceinline__ u32 compress(uint2 (&out)[kTogether], u32 (&codes)[kTogether],
                                        const uint4* in) {
  if constexpr (BYTES == 4) {
    bool a = is_nonzero_bits<4, true>(in->x), b = is_nonzero_bits<4, true>(in->y);
    bool c = is_nonzero_bits<4, true>(in->z), d = is_nonzero_bits<4, true>(in->w);
    out[0] = make_uint2(a ? in->x : in->y, c ? in->z : in->w);
    codes[0] = code_of_pair(a) | code_of_pair(c) << 4;
    return (a && b) | (c && d) << 4;
  } else {
    Tile tile;
    u32 kept[4], flags;
    if constexpr (BYTES == 2) {
      tile = {{{in[0].x, in[0].y}, {in[0].z, in[0].w}, {in[1].x, in[1].y}, {in[1].z, in[1].w}}};
      flags = nonzero<bf16>(tile);
    } else {
      const u32 word[4] = {in->x, in->y, in->z, in->w};
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        tile.row[g][0] = permute(word[g], 0, 0x4140);
        tile.row[g][1] = permute(word[g], 0, 0x4342);
      }
      if constexpr (SIGNED_ZERO)
        flags = nonzero<e4m3>(tile);
      else
        flags = nonzero<s8>(tile);
    }
    u32 each = compress(kept, tile, flags);  // a byte a code
    each |= each >> 4;
    if constexpr (BYTES == 2) {
      out[0] = make_uint2(kept[0], kept[1]);
      out[kTogether - 1] = make_uint2(kept[2], kept[3]);
      codes[0] = each;
      codes[kTogether - 1] = each >> 16;
    } else {
      out[0] = make_uint2(permute(kept[0], kept[1], 0x6420), permute(kept[2], kept[3], 0x6420));
      codes[0] = permute(each, 0, 0x20);
    }
    return crowded(flags);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    semi_structured_compress(Value* packed, Meta* meta, const Value* dense, int* failed, u64* first,
                             long long m, long long columns) {
  alignas(4) __shared__ Meta chunks[kColumns / 2][kChunk];
  unsigned column_blocks = unsigned((columns + kColumns - 1) / kColumns);
  long long row0 = (long long)(blockIdx.x / column_blocks) * kRows;
  long long column0 = (long long)(blockIdx.x % column_blocks) * kColumns;
  int half = threadIdx.x % (2 * kColumns), row = threadIdx.x / (2 * kColumns);
  bool inside = column0 + half / 2 < columns;
  int rows = m - row0 < kRows ? int(m - row0) : kRows;
  long long here = ((row0 + row) * columns + column0) * 2 + half;

  uint4 in[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
    if (inside && row + p * kRowStep < rows)
      in[p] = reinterpret_cast<const uint4*>(dense)[here + p * kRowStep * columns * 2];
  bool over = false;
#pragma unroll
  for (int p = 0; p < kPieces; p += kTogether) {
    if (!inside || row + p * kRowStep >= rows) continue;  // together: both or none
    uint2 out[kTogether];
    u32 codes[kTogether];
    over |= compress(out, codes, in + p) != 0;
#pragma unroll
    for (int q = 0; q < kTogether; ++q) {
      reinterpret_cast<uint2*>(packed)[here + (p + q) * kRowStep * columns * 2] = out[q];
      int place = place_in_chunk<sizeof(Meta)>(row + (p + q) * kRowStep, half / 2 % 2);
      reinterpret_cast<Half*>(chunks[half / 4])[2 * place + half % 2] = Half(codes[q]);
    }
  }
  if (first != nullptr && over) {  // a second pass, after a first that failed
#pragma unroll 1
    for (int p = 0; p < kPieces; p += kTogether) {
      if (row + p * kRowStep >= rows) break;
      uint4 again[kTogether];
      uint2 out[kTogether];
      u32 codes[kTogether];
      for (int q = 0; q < kTogether; ++q)
        again[q] = reinterpret_cast<const uint4*>(dense)[here + (p + q) * kRowStep * columns * 2];
      u32 groups = compress(out, codes, again);
      for (int q = 0; q < kTogether; ++q) {
        u32 mine = kTogether == 1 ? groups : groups >> (8 * q) & 0xffu;
        // A minimum of integers does not depend on the order of arrival.
        if (mine != 0)
          atomicMin(first, u64((here + (p + q) * kRowStep * columns * 2) * (Format::codes / 2) +
                               (__ffs(mine) - 1) / 4));
      }
    }
  }
  bool any = __syncthreads_or(over);
  if (any && failed != nullptr && threadIdx.x == 0) *failed = 1;
  constexpr int kPerWord = 4 / sizeof(Meta);
#pragma unroll
  for (int w = threadIdx.x; w < kColumns / 2 * kChunk / kPerWord; w += kThreads) {
    int pair = w / (kChunk / kPerWord), place = w % (kChunk / kPerWord);
    // A chunk of 16 rows (int32 alone) is its first half.
    if (column0 + 2 * pair < columns && place * kPerWord < 2 * rows)
      reinterpret_cast<u32*>(meta + chunk_offset(row0, column0 + 2 * pair, m))[place] =
          reinterpret_cast<const u32*>(chunks[pair])[place];
  }
}
