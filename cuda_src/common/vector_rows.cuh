// What the kernels of BSR @ a few vectors share (bsr_addmm_vector*.cu): which rows a warp takes,
// and words of several elements. -DINDEX, -DPIECES and -DBATCHED are as described there.
#pragma once

#include "common/types.cuh"
#include "common/view.cuh"

struct Sizes {
  long long batches, rows;  // of the work, in each batch: block rows or pieces
  long long parts;          // of a batch
  int rounds;               // rows that a team takes, one after the other
  int padding;
};

// A piece of a row, where -DPIECES=1: blocks begin .. end - 1 of block row `row`. `part` is where
// its sums go in `parts`, -1 if it is all of the row.
struct Piece {
  long long begin, end, row, part;
};

// The work of a warp: row `first` and those behind it, `teams` at a time.
struct WarpRows {
  long long b, first, rows;
  bool none;
  const void* work;  // indptr or the list of pieces, of this batch

  __device__ __forceinline__ WarpRows(const View& view, const Batch& batch, const Sizes& sizes,
                                      long long warp, int teams)
      : rows(sizes.rows) {
    const int rows_of_warp = sizes.rounds * teams;
    const long long warps = (rows + rows_of_warp - 1) / rows_of_warp;  // of a batch
    b = BATCHED ? warp / warps : 0;
    none = BATCHED ? b >= sizes.batches : warp >= warps;
    first = (warp - b * warps) * rows_of_warp;
    work = none ? nullptr : batch_ptr<const INDEX>(view, batch, b);
    if (PIECES && !none) work = batch_ptr<const s64>(view, batch, b);
  }

  __device__ __forceinline__ Piece piece_at(long long row) const {
    if (row >= rows) return {0, 0, 0, 0};
    if constexpr (PIECES) {
      return static_cast<const Piece*>(work)[row];
    } else {
      const INDEX* starts = static_cast<const INDEX*>(work) + row;
      return {(long long)__ldg(starts), (long long)__ldg(starts + 1), row, -1};
    }
  }
};

// The widest unsigned word of so many bytes.
template <int BYTES>
struct Word;
template <>
struct Word<1> {
  typedef unsigned char type;
};
template <>
struct Word<2> {
  typedef unsigned short type;
};
template <>
struct Word<4> {
  typedef unsigned type;
};
template <>
struct Word<8> {
  typedef uint2 type;
};
template <>
struct Word<16> {
  typedef uint4 type;
};
