// A tile-pruned matrix and its transpose, both compressed, in one pass over the dense matrix.
//
//   T     dtype of the values (16-bit float, int8 or e4m3)
//   RULE  largest_abs_values, largest_values, causal1122: choose, and write the bitmask;
//         given_mask: read the bitmask (semi_structured_apply), and say whether the rule of
//         compression dropped something
//
// A thread block takes 64 rows of 128 elements, a thread two neighbouring 4 x 4 tiles, all in
// registers. Packed rows are stored directly. The packed transpose, and the codes of both
// orientations in the order of their metadata, are staged in shared memory and stored in contiguous
// runs.

#include "common/ceil_div.cuh"
#include "common/semi_structured.cuh"
#include "common/selection.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

constexpr int kBytes = sizeof(T);
typedef Format24<kBytes> Format;
typedef Bits<kBytes>::type Value;
typedef Meta24<kBytes>::type Meta;
typedef Bits<2 * kBytes>::type KeptPair;  // what a row of a tile keeps

constexpr unsigned kRows = 64, kColumns = 128, kThreads = kRows / 4 * kColumns / 8;
constexpr unsigned kRowTiles = kRows / 4;
constexpr unsigned kCodes = kRows * kColumns / 8;    // bytes: two codes each, in either orientation
constexpr unsigned kShare = Format::elements / 8;    // bytes of a metadata element
constexpr unsigned kVector = 16 / sizeof(KeptPair);  // pairs of a 16-byte vector

// Place of a pair of the packed transpose; padding after every eight rows spreads the banks.
__device__ __forceinline__ unsigned transposed_place(unsigned row, unsigned tile_row) {
  return row * kRowTiles + row / 8 * kVector + tile_row;
}

// Place of a byte of codes in the image of a block's metadata, HEIGHT rows high. Within eight rows
// the next one is 16 bytes on.
template <unsigned HEIGHT>
__device__ __forceinline__ unsigned code_place(unsigned row, unsigned byte) {
  unsigned column = byte / kShare;
  unsigned element = column / 2 * 2 * HEIGHT + row / 32 * kChunk +
                     place_in_chunk<sizeof(Meta)>(row % 32, column % 2);
  return element * sizeof(Meta) + byte % kShare;
}

__device__ __forceinline__ unsigned char* bytes_of(uint4* image) {
  return reinterpret_cast<unsigned char*>(image);
}

// Write 16-byte vector `v` of such an image. The block is at (row0, column0) of `rows` rows, of
// which it has `high`, `wide` elements each.
template <unsigned HEIGHT>
__device__ __forceinline__ void write_codes(Meta* meta, const uint4* image, unsigned v,
                                            long long rows, long long row0, long long column0,
                                            unsigned high, unsigned wide) {
  constexpr unsigned kVectors = 2 * HEIGHT * sizeof(Meta) / 16;  // of two columns
  unsigned pair = v / kVectors, vector = v % kVectors;
  unsigned row = vector * 8 / sizeof(Meta);  // two elements a row
  if (row >= high || pair * 2 * Format::elements >= wide) return;
  Meta* to = meta + chunk_offset(row0, column0 / Format::elements + 2 * pair, rows);
  reinterpret_cast<uint4*>(to)[vector] = image[v];
}

extern "C" __global__ void __launch_bounds__(kThreads)
    semi_structured_tile(Value* packed, Meta* meta, Value* packed_t, Meta* meta_t,
                         unsigned char* mask, View dense, long long rows, long long columns,
                         int* dropped) {
  alignas(16) __shared__ KeptPair staged[kColumns * kRowTiles + kColumns / 8 * kVector];
  __shared__ uint4 codes[kCodes / 16], codes_t[kCodes / 16];
  unsigned column_blocks = unsigned(ceil_div(columns, kColumns));
  long long row0 = (long long)(blockIdx.x / column_blocks) * kRows;
  long long column0 = (long long)(blockIdx.x % column_blocks) * kColumns;
  // Both are multiples of 32: no tile is cut.
  unsigned high = rows - row0 < kRows ? unsigned(rows - row0) : kRows;
  unsigned wide = columns - column0 < kColumns ? unsigned(columns - column0) : kColumns;
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned tile_row = warp / 2 * 4 + lane / 8, tile_pair = warp % 2 * 8 + lane % 8;
  bool over = false;
  u32 down[2] = {};  // codes of the transpose: the columns of each tile

  if (tile_row * 4 < high && tile_pair * 8 < wide) {
    long long row = row0 + tile_row * 4, column = column0 + tile_pair * 8;
    const T* from = static_cast<const T*>(dense.ptr) + element_offset(dense, row, column);
    bool aligned = dense.col == 1 && (u64(dense.ptr) | u64(dense.row * kBytes)) % (8 * kBytes) == 0;
    Tile4x4 tile[2];
    load(tile, from, dense.row, dense.col, aligned);
    u32* masks = reinterpret_cast<u32*>(mask + mask_offset(row / 4, column / 4, columns));
    u32 given = RULE == given_mask ? *masks : 0, found = 0;
    u32 kept[2][4], across = 0;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      u32 stays = given >> (16 * t) & 0xffffu;
      if constexpr (RULE != given_mask) stays = choose<RULE, T>(tile[t]);
      keep(tile[t], stays);
      u32 flags = nonzero<T>(tile[t]), flags_t = transposed(flags);
      found |= flags << (16 * t);
      across |= compress(kept[t], tile[t], flags) << (4 * t);
      u32 kept_t[4];
      down[t] = compress(kept_t, transposed(tile[t]), flags_t);
      if constexpr (RULE == given_mask) over |= (crowded(flags) | crowded(flags_t)) != 0;
      unsigned place = transposed_place(tile_pair * 8 + 4 * t, tile_row);
#pragma unroll
      for (int i = 0; i < 4; ++i) store(staged + place + i * kRowTiles, kept_t[i]);
    }
    if constexpr (RULE != given_mask) *masks = found;
    Value* to = packed + row * (columns / 2) + column / 2;
    unsigned place = code_place<kRows>(tile_row * 4, tile_pair);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store(to + i * (columns / 2), kept[0][i], kept[1][i]);
      bytes_of(codes)[place + 16 * i] = across >> (8 * i);
    }
  }
  // Two tiles, one above the other, fill a byte of the transpose's codes; each of the two threads
  // takes one column of tiles.
  unsigned odd = tile_row % 2;
  u32 other = __shfl_xor_sync(0xffffffffu, odd ? down[0] : down[1], 8);
  u32 bytes = odd ? other | down[1] << 4 : down[0] | other << 4;
  unsigned place = code_place<kColumns>(tile_pair * 8 + odd * 4, tile_row / 2);
#pragma unroll
  for (int i = 0; i < 4; ++i) bytes_of(codes_t)[place + 16 * i] = bytes >> (8 * i);

  if constexpr (RULE == given_mask) {
    bool any = __syncthreads_or(over);
    if (any && dropped != nullptr && threadIdx.x == 0) *dropped = 1;
  } else {
    __syncthreads();
  }
  constexpr unsigned kVectors = kCodes / 16;
  unsigned v = threadIdx.x;
  if (v < kVectors)
    write_codes<kRows>(meta, codes, v, rows, row0, column0, high, wide);
  else if (v < 2 * kVectors)
    write_codes<kColumns>(meta_t, codes_t, v - kVectors, columns, column0, row0, wide, high);
  constexpr unsigned kAcross = kRowTiles / kVector;  // vectors of a row of the transpose
  unsigned r = threadIdx.x / kAcross, vector = threadIdx.x % kAcross;
  if (vector * kVector * 4 >= high) return;
  Value* to = packed_t + (column0 + r) * (rows / 2) + row0 / 2;
#pragma unroll
  for (unsigned below = 0; below < kColumns; below += kThreads / kAcross)
    if (r + below < wide)
      reinterpret_cast<uint4*>(to + below * (rows / 2))[vector] =
          *reinterpret_cast<const uint4*>(staged + transposed_place(r + below, vector * kVector));
}
