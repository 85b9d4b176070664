// How thread blocks take the tiles of a product of row groups. -DBM and -DTILE_N are those of the
// source.
#pragma once

#include "common/row_groups.cuh"

constexpr int TILE_M = 128;
constexpr int SLICE_M = BM < TILE_M ? BM : TILE_M;    // rows of a block that a tile holds
constexpr int SLICES_M = (BM + TILE_M - 1) / TILE_M;  // tiles that a block's rows need
constexpr int ROWS = TILE_M / SLICE_M;                // block rows of a group

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
  __device__ __forceinline__ Tile(unsigned tile, const Groups& schedule, const Sizes& sizes,
                                  unsigned band = 0) {
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
