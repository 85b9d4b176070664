// Tile schedulers of persistent thread blocks, for products of row groups: which tiles the output
// has, in which order thread blocks take them, and the prefetch of the schedule.
#pragma once

#include "common/ceil_div.cuh"
#include "common/raster.cuh"
#include "common/row_groups.cuh"

namespace sparsegpu {

struct RowGroupProblem {
  long long groups;   // of one matrix of the pattern
  long long batches;  // matrices of the output
  long long m, n;
  int pattern_batched;  // the pattern has `batches` matrices, or one for all
  int dense_batched;
};

// How blocks of BlockM rows fill a tile of 128 rows.
template <int BlockM>
struct RowGroupShape {
  static constexpr int TILE_M = 128;
  static constexpr int SLICE_M = BlockM < TILE_M ? BlockM : TILE_M;  // rows of a block in a tile
  static constexpr int SLICES_M = ceil_div(BlockM, TILE_M);  // tiles that a block's rows need
  static constexpr int ROWS = TILE_M / SLICE_M;              // block rows of a group

  static constexpr int GROUP_M = BlockM * ROWS;  // rows of a group

  // The row of the output that is row `row` of a group, which is number `group` of its matrix and
  // `number` of all; m or more where there is none.
  template <typename Index, typename Number>
  static __device__ __forceinline__ long long output_row(const RowGroups<Index>& schedule,
                                                         Number number, long long group, int row,
                                                         long long m) {
    long long found = group * GROUP_M + row;
    if (ROWS > 1 && row < GROUP_M && schedule.block_rows) {
      const int block_row = schedule.block_rows[number * ROWS + row / BlockM];
      found = block_row < 0 ? m : block_row * (long long)BlockM + row % BlockM;
    }
    return row < GROUP_M ? found : m;
  }
};

// One tile of the output: SLICE_M * ROWS rows of a group, and TileN columns. Groups of a matrix are
// taken in bands of RasterBand (0: all of them in one band) before the next columns are. Numbers of
// tiles fit 32 bits (_row_group_product.py).
template <int BlockM, int TileN, unsigned RasterBand = 0>
struct RowGroupTile {
  typedef RowGroupShape<BlockM> Shape;
  unsigned group, batch, column_tile;
  unsigned slice;  // of blocks taller than the tile

  template <typename Index>
  __device__ __forceinline__ RowGroupTile(unsigned tile, const RowGroups<Index>& schedule,
                                          const RowGroupProblem& problem) {
    const unsigned groups = unsigned(problem.groups), batches = unsigned(problem.batches);
    slice = tile % Shape::SLICES_M;
    tile /= Shape::SLICES_M;
    unsigned place;  // in the order of the groups
    if constexpr (RasterBand == 0) {
      place = tile % groups;
      tile /= groups;
    } else {
      const BandRaster<unsigned> raster(tile, groups, column_tiles(problem) * batches, RasterBand);
      place = raster.row;
      tile = raster.column;
    }
    if (problem.dense_batched) {
      column_tile = tile % column_tiles(problem);
      batch = tile / column_tiles(problem);
    } else {
      batch = tile % batches;
      column_tile = tile / batches;
    }
    group = schedule.order[(problem.pattern_batched ? batch * groups : 0) + place];
  }
  static __device__ __forceinline__ unsigned column_tiles(const RowGroupProblem& problem) {
    return unsigned(ceil_div(problem.n, TileN));
  }
  static __device__ __forceinline__ unsigned count(const RowGroupProblem& problem) {
    return unsigned(Shape::SLICES_M * problem.groups * problem.batches *
                    ceil_div(problem.n, TileN));
  }
};

// The tile that the thread block takes in this round; past the last one, it is done. Tiles are in
// LPT order (longest processing time first) within a column of tiles.
__device__ __forceinline__ unsigned zigzag_tile(unsigned round) {
  return round * gridDim.x + zigzag(round, blockIdx.x, gridDim.x);
}

// Reads the schedule of a group ahead, for a producer warp. An entry is BlockSteps steps; the warp
// fills step number `step` of every stage, which has StageSteps of them. The lanes read it for
// DEPTH stages at once, and for the next DEPTH while these are worked on.
template <typename Index, int Rows, int BlockSteps, int StageSteps = 1>
class SchedulePrefetch {
  static constexpr int DEPTH = 32 / Rows;
  const RowGroups<Index>& schedule;
  const long long start;
  const int steps, step;
  int current = 0;                    // of the DEPTH stages
  Index block = -1, next_block = -1;  // the lane's: of stage lane / Rows, row lane % Rows
  int column = -1, next_column = -1;  // of stage `lane`

  __device__ __forceinline__ void read(int stage) {
    const int lane = threadIdx.x % 32;
    const int s = (stage + lane / Rows) * StageSteps + step, c = (stage + lane) * StageSteps + step;
    next_block = s < steps ? schedule.blocks[(start + s / BlockSteps) * Rows + lane % Rows] : -1;
    next_column = lane < DEPTH && c < steps ? schedule.columns[start + c / BlockSteps] : -1;
  }

 public:
  __device__ __forceinline__ SchedulePrefetch(const RowGroups<Index>& schedule, unsigned group,
                                              int step = 0)
      : schedule(schedule),
        start(schedule.starts[group]),
        steps(schedule.counts[group] * BlockSteps),
        step(step) {
    read(0);
  }
  __device__ __forceinline__ int count() const { return steps; }

  // Go to the group's stage number `stage`: 0, then 1, and so on.
  __device__ __forceinline__ void advance_to(int stage) {
    current = stage % DEPTH;
    if (current != 0) return;
    block = next_block;
    column = next_column;
    read(stage + DEPTH);
  }
  // The block of row lane % Rows of the group, and the block column; negative: there is none.
  __device__ __forceinline__ long long my_block() const {
    return __shfl_sync(~0u, block, current * Rows + threadIdx.x % Rows);
  }
  __device__ __forceinline__ int block_column() const { return __shfl_sync(~0u, column, current); }
};

}  // namespace sparsegpu
