// The queries and keys of a tile of attention on tensor cores.
//
// A tile is up to TileQ query rows of one head: block rows of a group (common/row_groups.cuh), or a
// slice of one that is taller. Its keys are those of the group's entries, in strips of eight: a
// block of BlockK columns is BlockK / 8 strips, rounded up, the last one with fewer columns.
//
// What a mask says of an entry and a block row of its group is one number, its state: of a bool
// mask as bsr_attention_mask.cu finds it, of one that is added the number of the block.
#pragma once

#include "common/ceil_div.cuh"
#include "common/raster.cuh"
#include "common/row_groups.cuh"
#include "common/view.cuh"

namespace sparsegpu {

struct AttentionProblem {
  long long groups;  // of one matrix of the pattern
  long long nnzb;
  int heads;  // whose tiles these are, less than 2**31 in all
  int band;   // heads that take turns; 1: one head after the other
  int queries, features, value_features;
};

// States that are not the number of a block; those of a BlockCode (common/score.cuh) are the same.
constexpr int NOT_STORED = -1, ALL_TRUE = -2;

// A tile by its head and its number in it: groups in the schedule's order, slices of each.
struct TileNumber {
  long long head;
  int number;
};

// The tile in some place of all. Heads that take turns give the longest one of each first, so that
// no long tile is begun when most of the device is done. With one head after the other, fewer heads
// are under way at a time, and L2 holds more of what their tiles read.
template <int Slices>
__device__ __forceinline__ TileNumber tile_in_order(int place, const AttentionProblem& problem) {
  const BandRaster<int> raster(place / Slices, problem.heads, int(problem.groups), problem.band);
  return {raster.row, raster.column * Slices + place % Slices};
}

// Which split of its group's keys a tile is: its number, or -1 for a tile of all keys.
template <bool SplitKv>
struct KeySplit {
  static constexpr int split = -1;
};
template <>
struct KeySplit<true> {
  int split;
};

// With SplitKv the schedule is one of runs of entries of groups (SplitGroup), of one matrix.
template <int BlockM, int TileQ, bool SplitKv = false>
struct QueryTile : KeySplit<SplitKv> {
  static constexpr int BLOCK_M = BlockM, QUERIES = TileQ;
  static constexpr int ROWS = BlockM < TileQ ? TileQ / BlockM : 1;  // block rows of a group
  static constexpr int SLICES = BlockM > TileQ ? ceil_div(BlockM, TileQ) : 1;

  long long head;    // of all, as the batch numbers them
  BatchIndex at;     // the head in the batch
  long long matrix;  // of the pattern
  long long group;   // of all matrices; what starts and counts of the schedule are numbered by
  int first;         // query of the head
  int first_in_block;
  int rows;

  QueryTile() = default;  // in shared memory

  // `matrices` has the strides of the pattern's matrices in the batch, in matrices.
  template <typename Index>
  __device__ __forceinline__ QueryTile(TileNumber tile, const RowGroups<Index>& schedule,
                                       const View& matrices, const Batch& batch,
                                       const AttentionProblem& problem)
      : head(tile.head), at(batch, head) {
    matrix = at.offset(matrices);
    group = schedule.order[matrix * problem.groups + tile.number / SLICES];
    int number = int(group - matrix * problem.groups);
    if constexpr (SplitKv) {
      const SplitGroup run = schedule.splits[group];
      this->split = run.split;
      number = run.group;
    }
    place(number, tile.number % SLICES, problem);
  }
  // The tile of a group by its number in its matrix, which is the same rows in every head.
  __device__ __forceinline__ QueryTile(long long head, int number, int slice, const View& matrices,
                                       const Batch& batch, const AttentionProblem& problem)
      : matrix(0), group(number) {
    enter(head, matrices, batch, problem);
    place(number, slice, problem);
  }
  __device__ __forceinline__ void place(int number, int slice, const AttentionProblem& problem) {
    first_in_block = slice * TileQ;
    first = number * (ROWS * BlockM) + first_in_block;
    const int in_group = ROWS * BlockM - first_in_block;
    rows = min(min(in_group, TileQ), problem.queries - first);
  }

  // Go on to the same rows of another head.
  __device__ __forceinline__ void enter(long long other, const View& matrices, const Batch& batch,
                                        const AttentionProblem& problem) {
    head = other;
    at = BatchIndex(batch, head);
    group -= matrix * problem.groups;
    matrix = at.offset(matrices);
    group += matrix * problem.groups;
  }

  // Where a line of the tile lies in a matrix of the head, null behind the last one: a function of
  // the line.
  template <typename E>
  __device__ __forceinline__ auto lines(const E* base, long long row) const {
    return [this, base, row](int line) -> const E* {
      return line < rows ? base + (long long)(first + line) * row : nullptr;
    };
  }
  // The block row of the group, and the row of the block, of row `row` of the tile.
  static __device__ __forceinline__ int block_row(int row) { return ROWS == 1 ? 0 : row / BlockM; }
  __device__ __forceinline__ int row_in_block(int row) const {
    return ROWS == 1 ? first_in_block + row : row % BlockM;
  }
};

// The strips of a block's columns.
template <int BlockK>
struct KeyStrips {
  static constexpr int COLUMNS = BlockK, EACH = ceil_div(BlockK, 8);

  // The entry that a strip belongs to, its first column in the block, and how many it has.
  static __device__ __forceinline__ int entry(int strip) { return strip / EACH; }
  static __device__ __forceinline__ int column(int strip) { return strip % EACH * 8; }
  static __device__ __forceinline__ int width(int strip) {
    return BlockK % 8 == 0 ? 8 : min(8, BlockK - column(strip));
  }
};

}  // namespace sparsegpu
