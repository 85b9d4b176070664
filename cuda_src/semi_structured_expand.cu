// 2:4 to dense: every kept value to its position, zeros between.
//
//   BYTES  1, 2 or 4: size of a value
//
// The same blocks as semi_structured_compress.cu, read the other way.

#include "common/semi_structured.cuh"

typedef Format24<BYTES> Format;
typedef Bits<BYTES>::type Value;
typedef Meta24<BYTES>::type Meta;

constexpr int kRows = 32, kColumns = 8;

extern "C" __global__ void __launch_bounds__(kRows* kColumns)
    semi_structured_expand(Value* dense, const Value* packed, const Meta* meta, long long m,
                           long long columns) {
  __shared__ Meta chunks[kColumns / 2][kChunk];
  long long column_blocks = (columns + kColumns - 1) / kColumns;
  long long row0 = blockIdx.x / column_blocks * kRows;
  long long column0 = blockIdx.x % column_blocks * kColumns;
  int thread = threadIdx.x;
  int pair = thread / kChunk, place = thread % kChunk;
  if (row0 + row_in_chunk<sizeof(Meta)>(place) < m && column0 + 2 * pair < columns)
    chunks[pair][place] = meta[chunk_offset(row0, column0 + 2 * pair, m) + place];
  __syncthreads();

  long long row = row0 + thread / kColumns, column = column0 + thread % kColumns;
  if (row >= m || column >= columns) return;
  u32 codes =
      chunks[thread % kColumns / 2][place_in_chunk<sizeof(Meta)>(thread / kColumns, thread % 2)];
  long long here = row * columns + column;
  const Value* from = packed + here * (Format::elements / 2);
  Value* to = dense + here * Format::elements;
#pragma unroll
  for (int g = 0; g < Format::codes; ++g) {
    int code = codes >> (4 * g) & 15;
    Value v[Format::group] = {};
    if constexpr (Format::group == 4) {
      Value first = from[2 * g], second = from[2 * g + 1];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        v[i] = i == code >> 2 ? second : i == (code & 3) ? first : Value(0);
    } else {
      v[0] = code & 2 ? Value(0) : from[g];
      v[1] = code & 2 ? from[g] : Value(0);
    }
#pragma unroll
    for (int i = 0; i < Format::group; ++i) to[g * Format::group + i] = v[i];
  }
}
