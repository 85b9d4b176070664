// A tile-pruned matrix and its transpose, both compressed, in one pass over the dense matrix.
//
//   T     dtype of the values (16-bit float, int8 or e4m3)
//   RULE  largest_abs_values, largest_values, causal1122: choose, and write the bitmask;
//         given_mask: read the bitmask (semi_structured_apply)
//
// A block takes 64 x 64 elements, a thread one 4 x 4 tile. Packed values and codes of both
// orientations meet in shared memory and leave it in contiguous runs.

#include "common/selection.cuh"
#include "common/semi_structured.cuh"
#include "common/view.cuh"

constexpr int kBytes = sizeof(T);
typedef Format24<kBytes> Format;
typedef Bits<kBytes>::type Value;
typedef Meta24<kBytes>::type Meta;

constexpr int kSide = 64, kTiles = kSide / 4, kThreads = kTiles * kTiles;
constexpr int kWords = kSide / 2 * kBytes / 4;          // 32-bit words of a packed row of 64
constexpr int kMetaColumns = kSide / Format::elements;  // metadata columns of 64

// One orientation of a block's 64 x 64 elements.
struct Half {
  alignas(4) Value packed[kSide][kSide / 2 + 4 / kBytes];
  unsigned char code[kSide][kTiles];
};

// Compress one row of a tile: four values and their nonzero flags.
__device__ __forceinline__ void keep(Half& half, int row, int group, const Value (&v)[4],
                                     int flags) {
  int code = code_of_four(flags), i = code & 3, j = code >> 2;
  half.packed[row][2 * group] = i == 0 ? v[0] : i == 1 ? v[1] : v[2];
  half.packed[row][2 * group + 1] = j == 1 ? v[1] : j == 2 ? v[2] : v[3];
  half.code[row][group] = (unsigned char)code;
}

// Write one orientation: `rows` x `columns` is the whole matrix, (row0, column0) the block's place.
__device__ __forceinline__ void write(const Half& half, Value* packed, Meta* meta, long long rows,
                                      long long columns, long long row0, long long column0) {
  for (int w = threadIdx.x; w < kSide * kWords; w += kThreads) {
    int r = w / kWords, word = w % kWords;
    constexpr int per_word = 4 / kBytes;
    if (row0 + r < rows && column0 + 2 * per_word * word < columns)
      *reinterpret_cast<u32*>(packed + (row0 + r) * (columns / 2) + column0 / 2 + word * per_word) =
          *reinterpret_cast<const u32*>(&half.packed[r][word * per_word]);
  }
  for (int d = threadIdx.x; d < kMetaColumns * kSide; d += kThreads) {
    int pair = d / kChunk / 2, half_rows = d / kChunk % 2 * 32, place = d % kChunk;
    int r = half_rows + row_in_chunk<sizeof(Meta)>(place);
    int c = 2 * pair + column_in_chunk(place);
    if (row0 + r >= rows || column0 + c * Format::elements >= columns) continue;
    u32 codes = 0;
#pragma unroll
    for (int g = 0; g < Format::codes; ++g)
      codes |= u32(half.code[r][c * Format::codes + g]) << (4 * g);
    long long column = column0 / Format::elements + 2 * pair;
    meta[chunk_offset(row0 + half_rows, column, rows) + place] = Meta(codes);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    semi_structured_tile(Value* packed, Meta* meta, Value* packed_t, Meta* meta_t,
                         unsigned char* mask, View dense, long long rows, long long columns) {
  __shared__ Half straight, transposed;
  long long column_blocks = (columns + kSide - 1) / kSide;
  long long row0 = blockIdx.x / column_blocks * kSide;
  long long column0 = blockIdx.x % column_blocks * kSide;
  int tile_row = threadIdx.x / kTiles, tile_column = threadIdx.x % kTiles;
  long long row = row0 + tile_row * 4, column = column0 + tile_column * 4;

  if (row < rows && column < columns) {  // both are multiples of 32: no tile is cut
    const T* from = static_cast<const T*>(dense.ptr) + element_offset(dense, row, column);
    T value[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) value[i] = from[element_offset(dense, i / 4, i % 4)];
    unsigned char* bytes = mask + mask_offset(row / 4, column / 4, columns);
    unsigned kept;
    if constexpr (RULE == given_mask)
      kept = bytes[0] | bytes[1] << 8;
    else
      kept = choose_in_tile<RULE>(value);
    unsigned nonzero = 0;
    Value pruned[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      bool stays = kept >> i & 1;
      pruned[i] = stays ? reinterpret_cast<const Value&>(value[i]) : Value(0);
      nonzero |= unsigned(stays && !is_zero(value[i])) << i;
    }
    if constexpr (RULE != given_mask) {
      bytes[0] = nonzero & 255;
      bytes[1] = nonzero >> 8;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Value in_row[4] = {pruned[4 * i], pruned[4 * i + 1], pruned[4 * i + 2],
                               pruned[4 * i + 3]};
      const Value in_column[4] = {pruned[i], pruned[i + 4], pruned[i + 8], pruned[i + 12]};
      int row_flags = nonzero >> (4 * i) & 15;
      int column_flags = (nonzero >> i & 1) | (nonzero >> (i + 3) & 2) | (nonzero >> (i + 6) & 4) |
                         (nonzero >> (i + 9) & 8);
      keep(straight, tile_row * 4 + i, tile_column, in_row, row_flags);
      keep(transposed, tile_column * 4 + i, tile_row, in_column, column_flags);
    }
  }
  __syncthreads();
  write(straight, packed, meta, rows, columns, row0, column0);
  write(transposed, packed_t, meta_t, columns, rows, column0, row0);
}
