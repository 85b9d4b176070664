// How thread blocks take the tiles of a product of row groups. -DBM and -DTILE_N are those of the
// source.
#pragma once

#include "common/group_rows.cuh"

namespace sparsegpu {

struct Sizes {
  long long groups;   // of one matrix of the pattern
  long long batches;  // matrices of the output
  long long rows, columns;
  int pattern_batched;  // the pattern has `batches` matrices, or one for all
  int dense_batched;
};

// One tile of the output: SLICE_M * ROWS rows of a group, a panel of TILE_N columns. Numbers of
// tiles fit 32 bits (_addmm_sm90.py).
struct Tile {
  unsigned group, batch, panel;
  unsigned slice;  // of blocks taller than the tile

  // With bands, so many groups take all panels before the next groups do.
  __device__ __forceinline__ Tile(unsigned tile, const RowGroups<INDEX>& schedule,
                                  const Sizes& sizes, unsigned band = 0) {
    const unsigned groups = unsigned(sizes.groups), batches = unsigned(sizes.batches);
    slice = tile % SLICES_M;
    tile /= SLICES_M;
    unsigned number;
    if (band == 0) {
      number = tile % groups;
      tile /= groups;
    } else {
      const unsigned across = unsigned((sizes.columns + TILE_N - 1) / TILE_N) * batches;
      const unsigned first = tile / (band * across) * band;
      const unsigned high = min(band, groups - first);
      tile %= band * across;
      number = first + tile % high;
      tile /= high;
    }
    if (sizes.dense_batched) {
      const unsigned panels = unsigned((sizes.columns + TILE_N - 1) / TILE_N);
      panel = tile % panels;
      batch = tile / panels;
    } else {
      batch = tile % batches;
      panel = tile / batches;
    }
    group = schedule.order[(sizes.pattern_batched ? batch * groups : 0) + number];
  }
};

__device__ __forceinline__ unsigned tile_count(const Sizes& sizes) {
  return unsigned(SLICES_M * sizes.groups * sizes.batches *
                  ((sizes.columns + TILE_N - 1) / TILE_N));
}

// The number of the tile that the thread block takes next, or `tiles` and more. The longest come
// first in every panel: dealt out back and forth, long and short ones meet in each thread block.
__device__ __forceinline__ unsigned deal(unsigned round) {
  return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

// What the schedule says of a group's steps, of which BLOCK_STEPS are an entry, to the producer
// warp that fills every STEPS-th of them from number `step` on. The lanes read it for AHEAD turns
// at once, and for the next of them while these are worked on.
template <int BLOCK_STEPS, int STEPS = 1>
class StepsAhead {
  static constexpr int AHEAD = 32 / ROWS;
  const RowGroups<INDEX>& schedule;
  const long long start;
  const int steps, step;
  int now = 0;                        // of these turns
  INDEX block = -1, next_block = -1;  // the lane's: of turn lane / ROWS, row lane % ROWS
  int column = -1, next_column = -1;  // of turn `lane`

  __device__ __forceinline__ void read(int turn) {
    const int lane = threadIdx.x % 32;
    const int s = (turn + lane / ROWS) * STEPS + step, c = (turn + lane) * STEPS + step;
    next_block = s < steps ? schedule.blocks[(start + s / BLOCK_STEPS) * ROWS + lane % ROWS] : -1;
    next_column = lane < AHEAD && c < steps ? schedule.columns[start + c / BLOCK_STEPS] : -1;
  }

 public:
  __device__ __forceinline__ StepsAhead(const RowGroups<INDEX>& schedule, unsigned group,
                                        int step = 0)
      : schedule(schedule),
        start(schedule.starts[group]),
        steps(schedule.counts[group] * BLOCK_STEPS),
        step(step) {
    read(0);
  }
  __device__ __forceinline__ int count() const { return steps; }

  // Look at turn number `turn`: 0, then 1, and so on.
  __device__ __forceinline__ void look_at(int turn) {
    now = turn % AHEAD;
    if (now != 0) return;
    block = next_block;
    column = next_column;
    read(turn + AHEAD);
  }
  // The number of the entry's block in row lane % ROWS of the group, the entry's block column:
  // negative where there is none.
  __device__ __forceinline__ long long my_block() const {
    return __shfl_sync(~0u, block, now * ROWS + threadIdx.x % ROWS);
  }
  __device__ __forceinline__ int block_column() const { return __shfl_sync(~0u, column, now); }
};

}  // namespace sparsegpu
