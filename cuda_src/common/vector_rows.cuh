// What the kernels of BSR @ a few vectors share (bsr_addmm_vector*.cu): their operands, which rows
// a warp takes, where its sums go, and words of several elements. -DT, -DINDEX, -DOUT, -DBM, -DBK,
// -DCOLUMNS, -DPIECES, -DBATCHED and -DWARPS are as described in bsr_addmm_vector.cu.
#pragma once

#include "common/types.cuh"
#include "common/view.cuh"
#include "common/kernel_epilogue.cuh"
#include "ptx/mad_wide.cuh"

namespace sparsegpu {

typedef Acc<T>::type A;

struct Sizes {
  long long batches, rows;  // of the work, in each batch: block rows or pieces
  long long parts;          // of a batch
  int rounds;               // rows that a team takes, one after the other
  int padding;
};

struct Operands {
  View out, work;  // work is indptr or the list of pieces
  View indices, data, dense;
  Batch batch;
  Sizes sizes;
};
static_assert(sizeof(Operands) == 328, "_addmm_vector.py packs this");

// A piece of a row, where -DPIECES=1: blocks begin .. end - 1 of block row `row`. `part` is where
// its sums go in `parts`, -1 if it is all of the row.
struct Piece {
  long long begin, end, row, part;
};

// The work of a warp, row `first` and those behind it, `teams` at a time; and the matrices that it
// works on.
struct WarpRows {
  const Operands& operands;
  bool none;
  long long b, first, rows;
  const void* work;
  const T* values;
  const INDEX* columns;
  const T* dense;
  unsigned step;  // bytes from one block row of dense to the next; the host sees to it that this
                  // and a block column are numbers of 32 bits: one multiply-add finds a block row
  OUT* out;
  A* parts;
  KernelEpilogue<A, OUT> finish;

  __device__ __forceinline__ WarpRows(const Operands& operands, A* parts,
                                      const KernelEpilogueArgs<A>& epilogue, int teams)
      : operands(operands),
        rows(operands.sizes.rows),
        parts(parts),
        finish(epilogue, operands.batch, batch_of(operands.sizes, teams)) {
    const Sizes& sizes = operands.sizes;
    const Batch& batch = operands.batch;
    const long long warp = warp_number();
    b = batch_of(sizes, teams);
    none = BATCHED ? b >= sizes.batches : warp >= warps_of(sizes, teams);
    first = (warp - b * warps_of(sizes, teams)) * sizes.rounds * teams;
    work = batch_ptr<const INDEX>(operands.work, batch, b);
    if (PIECES) work = batch_ptr<const s64>(operands.work, batch, b);
    values = batch_ptr<const T>(operands.data, batch, b);
    columns = batch_ptr<const INDEX>(operands.indices, batch, b);
    dense = batch_ptr<const T>(operands.dense, batch, b);
    step = unsigned(operands.dense.row * BK * int(sizeof(T)));
    out = batch_ptr<OUT>(operands.out, batch, b);
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

  // What block column `column` meets, of what `panel` is for block column 0.
  __device__ __forceinline__ const T* block_row(const T* panel, INDEX column) const {
    return reinterpret_cast<const T*>(
        mad_wide(unsigned(column), step, reinterpret_cast<unsigned long long>(panel)));
  }

  // Hand on the sum of a piece's row r and column n.
  __device__ __forceinline__ void put(const Piece& piece, int r, int n, A sum) const {
    if (PIECES && piece.part >= 0) {
      const long long part = b * operands.sizes.parts + piece.part;
      parts[(part * BM + r) * COLUMNS + n] = sum;
    } else {
      const long long m = piece.row * BM + r;
      out[element_offset(operands.out, m, n)] = finish(sum, m, n);
    }
  }

 private:
  static __device__ __forceinline__ long long warp_number() {
    return (long long)blockIdx.x * WARPS + threadIdx.x / 32;
  }
  // Warps of a batch.
  static __device__ __forceinline__ long long warps_of(const Sizes& sizes, int teams) {
    const int rows_of_warp = sizes.rounds * teams;
    return (sizes.rows + rows_of_warp - 1) / rows_of_warp;
  }
  static __device__ __forceinline__ long long batch_of(const Sizes& sizes, int teams) {
    return BATCHED ? warp_number() / warps_of(sizes, teams) : 0;
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

}  // namespace sparsegpu
