// 2:4 to dense: every kept value to its position, zeros between.
//
//   BYTES  1, 2 or 4: size of a value
//
// A thread block takes a MetaTile (common/meta_tile.cuh).

#include "common/meta_tile.cuh"
#include "common/tile_4x4.cuh"

using namespace sparsegpu;

typedef MetaTile<BYTES> Tile;
typedef Tile::Value Value;
typedef Tile::Meta Meta;

// Four bytes of selectors that put the first and the second of a group's kept values where its
// code says, zeros (byte 4 of the permuted words) elsewhere.
__device__ __forceinline__ u32 place_of_four(u32 code, u32 zeros, u32 first, u32 second,
                                             int width) {
  u32 mask = (1u << width) - 1, i = (code & 3) * width, j = (code >> 2 & 3) * width;
  u32 selector = (zeros & ~(mask << i)) | first << i;
  return (selector & ~(mask << j)) | second << j;
}

extern "C" __global__ void __launch_bounds__(Tile::kThreads)
    semi_structured_expand(Value* dense, const Value* packed, const Meta* meta, long long m,
                           long long columns) {
  alignas(4) __shared__ Tile::Chunks chunks;
  const Tile tile(m, columns);

  uint2 in[Tile::kShares];
#pragma unroll
  for (int s = 0; s < Tile::kShares; ++s)
    if (tile.has(s)) in[s] = reinterpret_cast<const uint2*>(packed)[tile.number(s)];
  tile.each_word([&](int pair, int word, long long chunk) {
    reinterpret_cast<u32*>(chunks[pair])[word] = reinterpret_cast<const u32*>(meta + chunk)[word];
  });
  __syncthreads();

#pragma unroll
  for (int s = 0; s < Tile::kShares; ++s) {
    if (!tile.has(s)) continue;
    u32 codes = reinterpret_cast<const Tile::Half*>(chunks[tile.half / 4])[tile.code_in_chunk(s)];
    u32 out[4];
    if constexpr (BYTES == 4) {
      out[0] = codes & 2 ? 0 : in[s].x;
      out[1] = codes & 2 ? in[s].x : 0;
      out[2] = codes & 32 ? 0 : in[s].y;
      out[3] = codes & 32 ? in[s].y : 0;
    } else if constexpr (BYTES == 2) {
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        u32 kept = g ? in[s].y : in[s].x;
        u32 selector = place_of_four(codes >> (4 * g), 0x44444444u, 0x10, 0x32, 8);
        out[2 * g] = permute(kept, 0, selector);
        out[2 * g + 1] = permute(kept, 0, selector >> 16);
      }
    } else {
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        u32 kept = g / 2 ? in[s].y : in[s].x, first = g % 2 * 2;
        out[g] = permute(kept, 0, place_of_four(codes >> (4 * g), 0x4444u, first, first + 1, 4));
      }
    }
    reinterpret_cast<uint4*>(dense)[tile.number(s)] = make_uint4(out[0], out[1], out[2], out[3]);
  }
}
