// The tiles of a sampled product of persistent thread blocks.
//
// A unit is UnitN columns of a block, and TileM rows of it. All units are numbered: those of the
// blocks of a matrix in the order in which they are stored, then those of the blocks' next rows, of
// the next matrix, of the next split of K. A thread block computes runs of these numbers, its
// shares, and cuts them into strips where a block row ends, or where a tile is full.
//
// Even shares: one for each thread block, of as many units, which needs no schedule. Else a share
// is a strip: chunks of full tiles of a block row, numbered as those of common/sampled_tile.cuh.
// They read less of mat1, and those at work at a time are of few block rows.
#pragma once

#include "common/sampled_tile.cuh"

namespace sparsegpu {

// Units, from `unit` to `end`, which is not included.
struct SampledShare {
  long long unit, end;
  long long row;  // the block row of the first or one of the 31 before; negative: not known
};

// Units of one block row side by side: up to TileM rows and TileN columns of outputs.
template <int TileM, int TileN, int BlockM, int BlockN, int UnitN>
struct SampledStrip : SampledPart {
  static constexpr int BLOCK_N = BlockN;
  static constexpr int UNITS = BlockN / UnitN, SLICES = ceil_div(BlockM, TileM);
  static constexpr int MOST = TileN / UnitN;
  static_assert(BlockN % UnitN == 0 && MOST > 0, "blocks are whole units");

  long long block_row;       // of its matrix
  long long first_block;     // likewise
  int units;                 // 0: there is no such strip
  int first_row, first_col;  // within the first block
  int rows, columns;

  SampledStrip() = default;

  // Share number `number` of even ones.
  static __device__ __forceinline__ SampledShare even_share(long long number,
                                                            const SampledProblem& problem) {
    const long long all = problem.shares, share = all / gridDim.x, more = all % gridDim.x;
    const long long unit = number * share + min(number, more);
    return {unit, unit + share + (number < more), -1};
  }

  // Chunk number `number`: MOST units of a block row, fewer at its end, or none.
  template <typename Index>
  static __device__ __forceinline__ SampledShare chunk(long long number, const View& indptr,
                                                       const Batch& batch,
                                                       const SampledProblem& problem, Index) {
    const long long slice = number / problem.chunks, within = number - slice * problem.chunks;
    const long long matrix = slice / SLICES % problem.matrices;
    const Index* starts = batch_ptr<const Index>(indptr, batch, matrix);
    const auto units_before = [&](long long row) {
      return (long long)starts[row * indptr.row] * UNITS;
    };
    const auto first_chunk = [&](long long row) { return units_before(row) / MOST + row; };
    const long long row = last_row(within, problem.block_rows, 1, first_chunk);
    const long long first = units_before(row) + (within - first_chunk(row)) * MOST;
    const long long end = min(first + MOST, units_before(row + 1));
    const long long base = slice * problem.blocks * UNITS;
    return {base + first, base + end, row};
  }

  // The first strip of the units from `unit` to `end`. `row`: its block row may be that or one of
  // the next 31; negative: not known. All lanes of a warp call this. `indptr` and `problem` as the
  // kernel gets them.
  template <typename Index>
  __device__ __forceinline__ SampledStrip(long long unit, long long end, long long row,
                                          const View& indptr, const Batch& batch,
                                          const SampledProblem& problem, Index) {
    const long long slice = unit / (problem.blocks * UNITS);
    const long long within = unit - slice * (problem.blocks * UNITS);
    part = slice / SLICES;
    first_row = int(slice % SLICES) * TileM;
    first_block = within / UNITS;
    first_col = int(within % UNITS) * UnitN;
    const Index* starts = batch_ptr<const Index>(indptr, batch, matrix(problem));
    const int lane = threadIdx.x % 32;
    // Blocks from the first one to the end of row `row + lane`, and how many rows end before it.
    long long ahead = 1;
    int passed = 32;
    const auto look = [&] {
      const long long next = row + lane + 1;
      ahead = next <= problem.block_rows ? starts[next * indptr.row] - first_block : 1;
      passed = __popc(__ballot_sync(~0u, ahead <= 0));
    };
    if (row >= 0) look();
    if (passed == 32) {
      row = last_row(first_block, problem.block_rows, 32,
                     [&](long long i) { return (long long)starts[i * indptr.row]; });
      look();
    }
    block_row = row + passed;
    const long long most = min(ahead * UNITS - within % UNITS, end - unit);
    units = __shfl_sync(~0u, int(min(most, (long long)MOST)), passed);
    rows = min(TileM, BlockM - first_row);
    columns = units * UnitN;
  }

  // Which block a column of the strip belongs to, from the first one on, and its column of that.
  __device__ __forceinline__ int block_of(int column) const {
    return (UNITS > 1 ? first_col + column : column) / BlockN;
  }
  __device__ __forceinline__ int column_in_block(int column) const {
    return (UNITS > 1 ? first_col + column : column) % BlockN;
  }
};

}  // namespace sparsegpu
