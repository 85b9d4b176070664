// A tile of a matrix on its way into the 2:4 format or out of it: 32 rows of 16 metadata columns
// (512 bytes of each row). A thread takes four times half a metadata element: 16 dense and 8 packed
// bytes. The metadata passes through shared memory, so that each chunk of CUTLASS's order is one
// contiguous run.
//
// -DBYTES is that of the source: the size of a value.
#pragma once

#include "common/semi_structured.cuh"

namespace sparsegpu {

typedef Format24<BYTES> Format;
typedef Bits<BYTES>::type Value;
typedef Meta24<BYTES>::type Meta;
typedef Bits<sizeof(Meta) / 2>::type Half;

constexpr int kRows = 32, kColumns = 16, kThreads = 256;
constexpr int kPieces = kRows * kColumns * 2 / kThreads;
constexpr int kRowStep = kThreads / (2 * kColumns);

struct FormatTile {
  long long row0, column0, columns, m;
  int half, row, rows;  // the thread's half of an element, and first row; rows of the tile
  bool inside;

  __device__ __forceinline__ FormatTile(long long m, long long columns) : columns(columns), m(m) {
    unsigned column_blocks = unsigned((columns + kColumns - 1) / kColumns);
    row0 = (long long)(blockIdx.x / column_blocks) * kRows;
    column0 = (long long)(blockIdx.x % column_blocks) * kColumns;
    half = threadIdx.x % (2 * kColumns);
    row = threadIdx.x / (2 * kColumns);
    inside = column0 + half / 2 < columns;
    rows = m - row0 < kRows ? int(m - row0) : kRows;
  }

  // The thread's piece p: whether there is one, which it is of all, where its code is in a chunk.
  __device__ __forceinline__ bool has(int p) const { return inside && row + p * kRowStep < rows; }
  __device__ __forceinline__ long long piece(int p) const {
    return ((row0 + row + p * kRowStep) * columns + column0) * 2 + half;
  }
  __device__ __forceinline__ int code_in_chunk(int p) const {
    return 2 * place_in_chunk<sizeof(Meta)>(row + p * kRowStep, half / 2 % 2) + half % 2;
  }

  // Call copy(pair, word, offset) for this thread's words of the metadata, each with its place in
  // the chunk of a pair of columns, and the chunk's in the matrix.
  template <typename Copy>
  __device__ __forceinline__ void each_word(Copy copy) const {
    constexpr int kPerWord = 4 / sizeof(Meta);
#pragma unroll
    for (int w = threadIdx.x; w < kColumns / 2 * kChunk / kPerWord; w += kThreads) {
      int pair = w / (kChunk / kPerWord), word = w % (kChunk / kPerWord);
      // A chunk of 16 rows (int32 alone) is its first half.
      if (column0 + 2 * pair < columns && word * kPerWord < 2 * rows)
        copy(pair, word, chunk_offset(row0, column0 + 2 * pair, m));
    }
  }
};

}  // namespace sparsegpu
