// Dense to 2:4 in one pass: packed values, metadata in CUTLASS's order, and whether a group holds
// more nonzeros than it keeps (`failed`, which the host may own), or which is the first (`first`).
//
//   BYTES        1, 2 or 4: size of a value
//   SIGNED_ZERO  1 where the sign bit alone is -0.0 (floats), 0 for int8
//
// A block takes 32 rows of 8 metadata columns (256 bytes of each row); a thread one metadata
// element: 32 bytes in, 16 bytes out. The metadata meets in shared memory, so that each chunk of
// the scattered order is written as one contiguous run.

#include "common/semi_structured.cuh"

typedef Format24<BYTES> Format;
typedef Bits<BYTES>::type Value;
typedef Meta24<BYTES>::type Meta;

constexpr int kRows = 32, kColumns = 8;

// Element i of 32-bit words; i is a constant after unrolling, so the words stay in registers.
__device__ __forceinline__ u32 element(const u32* words, int i) {
  u32 shifted = words[i * BYTES / 4] >> (8 * (i * BYTES % 4));
  return BYTES == 4 ? shifted : shifted & ((1u << (8 * BYTES % 32)) - 1);
}
__device__ __forceinline__ void put(u32* words, int i, u32 value) {
  words[i * BYTES / 4] |= value << (8 * (i * BYTES % 4));
}

extern "C" __global__ void __launch_bounds__(kRows* kColumns)
    semi_structured_compress(Value* packed, Meta* meta, const Value* dense, int* failed, u64* first,
                             long long m, long long columns) {
  __shared__ Meta chunks[kColumns / 2][kChunk];
  unsigned column_blocks = unsigned((columns + kColumns - 1) / kColumns);
  long long row0 = (long long)(blockIdx.x / column_blocks) * kRows;
  long long column0 = (long long)(blockIdx.x % column_blocks) * kColumns;
  int thread = threadIdx.x;
  long long row = row0 + thread / kColumns, column = column0 + thread % kColumns;

  int too_many = -1;  // first group of this element that keeps too little
  if (row < m && column < columns) {
    long long here = row * columns + column;
    const Value* from = dense + here * Format::elements;
    Value* to = packed + here * (Format::elements / 2);
    u32 in[8] = {}, out[4] = {};
    if ((u64)dense % 16 == 0) {
      uint4 low = reinterpret_cast<const uint4*>(from)[0];
      uint4 high = reinterpret_cast<const uint4*>(from)[1];
      in[0] = low.x, in[1] = low.y, in[2] = low.z, in[3] = low.w;
      in[4] = high.x, in[5] = high.y, in[6] = high.z, in[7] = high.w;
    } else {
#pragma unroll
      for (int i = 0; i < Format::elements; ++i) put(in, i, from[i]);
    }
    u32 codes = 0;
#pragma unroll
    for (int g = Format::codes - 1; g >= 0; --g) {
      u32 v[Format::group];
      int flags = 0, count = 0;
#pragma unroll
      for (int i = 0; i < Format::group; ++i) {
        v[i] = element(in, g * Format::group + i);
        bool nonzero = is_nonzero_bits<BYTES, SIGNED_ZERO>(v[i]);
        flags |= nonzero << i;
        count += nonzero;
      }
      if (count > Format::kept) too_many = g;
      int code;
      if constexpr (Format::group == 4) {
        code = code_of_four(flags);
        int i = code & 3, j = code >> 2;
        put(out, 2 * g, i == 0 ? v[0] : i == 1 ? v[1] : v[2]);
        put(out, 2 * g + 1, j == 1 ? v[1] : j == 2 ? v[2] : v[3]);
      } else {
        code = code_of_pair(flags);
        put(out, g, flags & 1 ? v[0] : v[1]);
      }
      codes |= u32(code) << (4 * g);
    }
    if ((u64)packed % 16 == 0) {
      *reinterpret_cast<uint4*>(to) = make_uint4(out[0], out[1], out[2], out[3]);
    } else {
#pragma unroll
      for (int i = 0; i < Format::elements / 2; ++i) to[i] = Value(element(out, i));
    }
    int pair = thread % kColumns / 2;
    chunks[pair][place_in_chunk<sizeof(Meta)>(thread / kColumns, thread % 2)] = Meta(codes);
    // A minimum of integers does not depend on the order of arrival.
    if (first != nullptr && too_many >= 0) atomicMin(first, u64(here * Format::codes + too_many));
  }
  bool any = __syncthreads_or(too_many >= 0);
  if (any && failed != nullptr && thread == 0) *failed = 1;
  int pair = thread / kChunk, place = thread % kChunk;
  if (row0 + row_in_chunk<sizeof(Meta)>(place) < m && column0 + 2 * pair < columns)
    meta[chunk_offset(row0, column0 + 2 * pair, m) + place] = chunks[pair][place];
}
