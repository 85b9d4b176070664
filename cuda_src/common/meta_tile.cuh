// A tile of a matrix on its way into the 2:4 format or out of it: 32 rows of 16 metadata columns
// (512 bytes of each row). A thread takes four times half a metadata element: 16 dense and 8 packed
// bytes. The metadata is staged in shared memory, so that each chunk of CUTLASS's order is one
// contiguous run.
#pragma once

#include "common/ceil_div.cuh"
#include "common/semi_structured.cuh"

namespace sparsegpu {

// SIZE: bytes of a value.
template <int SIZE>
struct MetaTile {
  typedef Format24<SIZE> Format;
  typedef typename Bits<SIZE>::type Value;
  typedef typename Meta24<SIZE>::type Meta;
  typedef typename Bits<sizeof(Meta) / 2>::type Half;

  static constexpr int kRows = 32, kColumns = 16, kThreads = 256;
  static constexpr int kShares = kRows * kColumns * 2 / kThreads;  // of a thread
  static constexpr int kRowStep = kThreads / (2 * kColumns);
  typedef Meta Chunks[kColumns / 2][kChunk];

  long long row0, column0, columns, m;
  int half, row, rows;  // the thread's half of an element, and first row; rows of the tile
  bool inside;

  __device__ __forceinline__ MetaTile(long long m, long long columns) : columns(columns), m(m) {
    unsigned column_blocks = unsigned(ceil_div(columns, kColumns));
    row0 = (long long)(blockIdx.x / column_blocks) * kRows;
    column0 = (long long)(blockIdx.x % column_blocks) * kColumns;
    half = threadIdx.x % (2 * kColumns);
    row = threadIdx.x / (2 * kColumns);
    inside = column0 + half / 2 < columns;
    rows = m - row0 < kRows ? int(m - row0) : kRows;
  }

  // The thread's share s: whether it is within the matrix, its number among all half elements of
  // the matrix, and the offset of its codes in a chunk.
  __device__ __forceinline__ bool has(int s) const { return inside && row + s * kRowStep < rows; }
  __device__ __forceinline__ long long number(int s) const {
    return ((row0 + row + s * kRowStep) * columns + column0) * 2 + half;
  }
  __device__ __forceinline__ int code_in_chunk(int s) const {
    return 2 * place_in_chunk<sizeof(Meta)>(row + s * kRowStep, half / 2 % 2) + half % 2;
  }

  // Call copy(pair, word, offset) for this thread's words of the metadata: `word` is the place in
  // the chunk of a pair of columns, `offset` that of the chunk in the matrix.
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
