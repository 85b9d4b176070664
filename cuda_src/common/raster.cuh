// In which order tiles are taken, and who takes them: functions of numbers alone.
#pragma once

namespace sparsegpu {

// Raster order in bands: tile number `tile` of rows x columns tiles, taken column by column within
// a band of `band` rows, so that tiles that run at the same time share operands in L2.
template <typename Int>
struct BandRaster {
  Int row, column;

  __device__ __forceinline__ BandRaster(Int tile, Int rows, Int columns, Int band) {
    const Int above = tile / (band * columns);
    tile %= band * columns;
    const Int height = min(band, rows - above * band);
    column = tile / height;
    row = above * band + tile % height;
  }
};

// The place of one of `count` takers in a round in which each takes a tile. Rounds go left to right
// and right to left, so that of tiles that get shorter each taker has long and short ones: R. L.
// Graham, "Bounds on multiprocessing timing anomalies", 1969.
__device__ __forceinline__ unsigned zigzag(unsigned round, unsigned taker, unsigned count) {
  return round % 2 ? count - 1 - taker : taker;
}

}  // namespace sparsegpu
