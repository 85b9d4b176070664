// Products of float64 on tensor cores, from shared memory.
//
// The tensor cores multiply a (16 x 8) by b (8 x 8). Here `a` is the right operand, transposed, and
// `b` the left one: so neighbouring registers of a fragment are neighbours in shared memory, too,
// and a warp may have any multiple of eight rows. Which term is called k, and which column is
// called row of a, is free; with g = lane / 4 and t = lane % 4 (ptx/mma.cuh),
//
//   k = t and t + 4        stand for terms 2t and 2t + 1 of eight,
//   rows g and g + 8 of a  stand for columns 2g and 2g + 1 of sixteen,
//
// so that all loads take 16 bytes. Eight lanes, which one access serves, read 2 rows x 64 bytes of
// `left` or 4 rows (every other one) x 32 bytes of `right`: both are padded to spread over all
// banks.
#pragma once

#include "common/types.cuh"
#include "ptx/mma.cuh"

namespace sparsegpu {

// The outputs of one of WarpsM x WarpsN warps, which share a tile: left[m][k] @ right[k][n].
template <int TileM, int TileN, int TileK, int WarpsM, int WarpsN>
struct WarpMmaF64Outputs {
  static constexpr int DEPTH = TileK;  // terms of a slice that are multiplied, zeros included
  static constexpr int WARP_M = TileM / WarpsM, WARP_N = TileN / WarpsN;
  static constexpr bool LEFT_BY_TERM = false;
  static constexpr int LEFT_PITCH = TileK * 8 + (TileK % 16 == 0 ? 64 : 0);
  static constexpr int RIGHT_PITCH = (TileN + 2) * 8;
  static constexpr int PART_ROWS = 8, PARTS = WARP_M / PART_ROWS;  // rows that are staged at once
  static_assert(WARP_M % 8 == 0 && WARP_N % 16 == 0, "a warp multiplies 8 x 16 outputs at a time");
  static_assert(TileK % 8 == 0 && TileN % 8 == 0, "eight terms at a time");

  f64 sum[WARP_M / 8][WARP_N / 16][4] = {};
  int row, col, g, t;  // row and col: where the warp's part starts in the tile

  __device__ __forceinline__ WarpMmaF64Outputs() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row = warp / WarpsN * WARP_M;
    col = warp % WarpsN * WARP_N;
    g = lane / 4;
    t = lane % 4;
  }

  // Add the products of one slice's first `terms` terms. load() goes between the first loads from
  // shared memory and their use: it starts the copies of a later slice.
  template <typename Load>
  __device__ __forceinline__ void multiply(const unsigned char* left, const unsigned char* right,
                                           int terms, Load load) {
    left += (row + g) * LEFT_PITCH + t * 16;
    right += 2 * t * RIGHT_PITCH + (col + 2 * g) * 8;
#pragma unroll
    for (int k = 0; k < TileK; k += 8) {
      if (k >= terms) break;
      f64 b[WARP_M / 8][2], a[WARP_N / 16][4];
#pragma unroll
      for (int i = 0; i < WARP_M / 8; ++i) load_two(b[i], left + 8 * i * LEFT_PITCH + k * 8);
#pragma unroll
      for (int j = 0; j < WARP_N / 16; ++j) {
        load_two(a[j], right + k * RIGHT_PITCH + j * 128);
        load_two(a[j] + 2, right + (k + 1) * RIGHT_PITCH + j * 128);
      }
      if (k == 0) load();
#pragma unroll
      for (int j = 0; j < WARP_N / 16; ++j)
#pragma unroll
        for (int i = 0; i < WARP_M / 8; ++i) mma_f64_m16n8k8(sum[i][j], a[j], b[i]);
    }
  }

  // Put PART_ROWS rows from part * PART_ROWS on, where rows are `pitch` elements apart.
  __device__ __forceinline__ void stage(int part, f64* staged, int pitch) const {
#pragma unroll
    for (int j = 0; j < WARP_N / 16; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        *reinterpret_cast<double2*>(staged + (2 * t + r) * pitch + 16 * j + 2 * g) = {
            sum[part][j][r], sum[part][j][r + 2]};
  }

 private:
  static __device__ __forceinline__ void load_two(f64* two, const unsigned char* from) {
    const double2 both = *reinterpret_cast<const double2*>(from);
    two[0] = both.x, two[1] = both.y;
  }
};

}  // namespace sparsegpu
