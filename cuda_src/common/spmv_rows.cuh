// What the kernels of BSR @ a few vectors share (bsr_addmm_vector*.cu): their operands, which rows
// a warp takes, and where its sums go.
#pragma once

#include "common/ceil_div.cuh"
#include "common/vector16.cuh"
#include "common/view.cuh"
#include "ptx/mad_wide.cuh"

namespace sparsegpu {

struct SpmvProblem {
  long long batches, rows;  // of the work, in each batch: block rows or splits of them
  long long partials;       // of a batch
  int rounds;               // rows that a team takes, one after the other
  int padding;
};

struct SpmvOperands {
  View out, work;  // work is indptr or the list of splits
  View indices, data, dense;
  Batch batch;
  SpmvProblem problem;
};
static_assert(sizeof(SpmvOperands) == 5 * sizeof(View) + sizeof(Batch) + sizeof(SpmvProblem),
              "the host packs five views, a batch and a problem, without padding");

// A split of a row, as in split-K: blocks begin .. end - 1 of block row `row`. `partial` is where
// its sums go in `partials`, -1 if it is all of the row.
struct RowSplit {
  long long begin, end, row, partial;
};

// The work of a warp, row `first` and those behind it, `teams` at a time; and the matrices that it
// works on.
//
// `Config` has the types Element, Index and Op (the epilogue); bm, bk (the block); columns (N);
// warps (of a thread block); split_rows (the work is a list of splits, not indptr); batched (there
// may be several matrices).
template <typename Config>
struct SpmvRows {
  typedef typename Config::Element Element;
  typedef typename Config::Index Index;
  typedef typename Config::Op Op;
  typedef typename Op::Out Output;
  typedef typename Acc<Element>::type A;

  const SpmvOperands& operands;
  bool none;
  long long b, first, rows;
  const void* work;
  const Element* values;
  const Index* columns;
  const Element* dense;
  unsigned step;  // bytes from one block row of dense to the next; the host ensures that this and a
                  // block column fit 32 bits: one multiply-add finds a block row
  Output* out;
  A* partials;
  Op finish;

  __device__ __forceinline__ SpmvRows(const SpmvOperands& operands, A* partials,
                                      const typename Op::Args& epilogue, int teams)
      : operands(operands),
        rows(operands.problem.rows),
        partials(partials),
        finish(epilogue, operands.batch, batch_of(operands.problem, teams)) {
    const SpmvProblem& problem = operands.problem;
    const Batch& batch = operands.batch;
    const long long warp = warp_number();
    b = batch_of(problem, teams);
    none = Config::batched ? b >= problem.batches : warp >= warps_of(problem, teams);
    first = (warp - b * warps_of(problem, teams)) * problem.rounds * teams;
    work = batch_ptr<const Index>(operands.work, batch, b);
    if (Config::split_rows) work = batch_ptr<const s64>(operands.work, batch, b);
    values = batch_ptr<const Element>(operands.data, batch, b);
    columns = batch_ptr<const Index>(operands.indices, batch, b);
    dense = batch_ptr<const Element>(operands.dense, batch, b);
    step = unsigned(operands.dense.row * Config::bk * int(sizeof(Element)));
    out = batch_ptr<Output>(operands.out, batch, b);
  }

  __device__ __forceinline__ RowSplit split_at(long long row) const {
    if (row >= rows) return {0, 0, 0, 0};
    if constexpr (Config::split_rows) {
      return static_cast<const RowSplit*>(work)[row];
    } else {
      const Index* starts = static_cast<const Index*>(work) + row;
      return {(long long)__ldg(starts), (long long)__ldg(starts + 1), row, -1};
    }
  }

  // What block column `column` meets; `panel` is what block column 0 meets.
  __device__ __forceinline__ const Element* block_row(const Element* panel, Index column) const {
    return reinterpret_cast<const Element*>(
        mad_wide(unsigned(column), step, reinterpret_cast<unsigned long long>(panel)));
  }

  // Store the sum of row r of a split's blocks and column n.
  __device__ __forceinline__ void store(const RowSplit& split, int r, int n, A sum) const {
    if (Config::split_rows && split.partial >= 0) {
      const long long partial = b * operands.problem.partials + split.partial;
      partials[(partial * Config::bm + r) * Config::columns + n] = sum;
    } else {
      const long long m = split.row * Config::bm + r;
      out[element_offset(operands.out, m, n)] = finish(sum, m, n);
    }
  }

 private:
  static __device__ __forceinline__ long long warp_number() {
    return (long long)blockIdx.x * Config::warps + threadIdx.x / 32;
  }
  // Warps of a batch.
  static __device__ __forceinline__ long long warps_of(const SpmvProblem& problem, int teams) {
    const int rows_of_warp = problem.rounds * teams;
    return ceil_div(problem.rows, rows_of_warp);
  }
  static __device__ __forceinline__ long long batch_of(const SpmvProblem& problem, int teams) {
    return Config::batched ? warp_number() / warps_of(problem, teams) : 0;
  }
};

}  // namespace sparsegpu
