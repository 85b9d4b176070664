// Dense to 2:4 in one pass: packed values, metadata in CUTLASS's order, and whether a group holds
// more nonzeros than it keeps (`failed`, which the host may own), or which is the first (`first`).
//
//   BYTES        1, 2 or 4: size of a value
//   SIGNED_ZERO  1 where the sign bit alone is -0.0 (floats), 0 for int8
//
// A thread block takes a MetaTile (common/meta_tile.cuh).

#include "common/meta_tile.cuh"
#include "common/tile_4x4.cuh"

using namespace sparsegpu;

typedef MetaTile<BYTES> Tile;
typedef Tile::Value Value;
typedef Tile::Meta Meta;

// Shares whose groups are compressed at once: a Tile4x4 has four rows, so it takes four groups.
constexpr int kBatch = BYTES == 2 ? 2 : 1;

// Compress shares; in the result, bit 4 * group is set for a group with more nonzeros than it
// keeps.
__device__ __forceinline__ u32 compress(uint2 (&out)[kBatch], u32 (&codes)[kBatch],
                                        const uint4* in) {
  if constexpr (BYTES == 4) {
    bool a = is_nonzero_bits<4, true>(in->x), b = is_nonzero_bits<4, true>(in->y);
    bool c = is_nonzero_bits<4, true>(in->z), d = is_nonzero_bits<4, true>(in->w);
    out[0] = make_uint2(a ? in->x : in->y, c ? in->z : in->w);
    codes[0] = code_of_pair(a) | code_of_pair(c) << 4;
    return (a && b) | (c && d) << 4;
  } else {
    Tile4x4 tile;
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
      out[kBatch - 1] = make_uint2(kept[2], kept[3]);
      codes[0] = each;
      codes[kBatch - 1] = each >> 16;
    } else {
      out[0] = make_uint2(permute(kept[0], kept[1], 0x6420), permute(kept[2], kept[3], 0x6420));
      codes[0] = permute(each, 0, 0x20);
    }
    return crowded(flags);
  }
}

extern "C" __global__ void __launch_bounds__(Tile::kThreads)
    semi_structured_compress(Value* packed, Meta* meta, const Value* dense, int* failed, u64* first,
                             long long m, long long columns) {
  alignas(4) __shared__ Tile::Chunks chunks;
  const Tile tile(m, columns);
  const long long first_number = tile.number(0);
  auto number = [&](int s) { return first_number + s * Tile::kRowStep * columns * 2; };

  uint4 in[Tile::kShares];
#pragma unroll
  for (int s = 0; s < Tile::kShares; ++s)
    if (tile.has(s)) in[s] = reinterpret_cast<const uint4*>(dense)[number(s)];
  bool over = false;
#pragma unroll
  for (int s = 0; s < Tile::kShares; s += kBatch) {
    if (!tile.has(s)) continue;  // both shares of a batch, or none
    uint2 out[kBatch];
    u32 codes[kBatch];
    over |= compress(out, codes, in + s) != 0;
#pragma unroll
    for (int q = 0; q < kBatch; ++q) {
      reinterpret_cast<uint2*>(packed)[number(s + q)] = out[q];
      reinterpret_cast<Tile::Half*>(chunks[tile.half / 4])[tile.code_in_chunk(s + q)] =
          Tile::Half(codes[q]);
    }
  }
  if (first != nullptr && over) {  // a second pass, after a first that failed
#pragma unroll 1
    for (int s = 0; s < Tile::kShares; s += kBatch) {
      if (!tile.has(s)) break;
      uint4 again[kBatch];
      uint2 out[kBatch];
      u32 codes[kBatch];
      for (int q = 0; q < kBatch; ++q)
        again[q] = reinterpret_cast<const uint4*>(dense)[number(s + q)];
      u32 groups = compress(out, codes, again);
      for (int q = 0; q < kBatch; ++q) {
        u32 mine = kBatch == 1 ? groups : groups >> (8 * q) & 0xffu;
        // A minimum of integers does not depend on the order of arrival.
        if (mine != 0)
          atomicMin(first, u64(number(s + q) * (Tile::Format::codes / 2) + (__ffs(mine) - 1) / 4));
      }
    }
  }
  bool any = __syncthreads_or(over);
  if (any && failed != nullptr && threadIdx.x == 0) *failed = 1;
  tile.each_word([&](int pair, int word, long long chunk) {
    reinterpret_cast<u32*>(meta + chunk)[word] = reinterpret_cast<const u32*>(chunks[pair])[word];
  });
}
