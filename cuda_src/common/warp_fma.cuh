// Products of float32 by multiply-adds, from shared memory.
//
// A lane keeps ThreadM x THREAD_N outputs in registers, as groups of four neighbouring rows and of
// four neighbouring columns, and reads for each k as many groups of both operands, 16 bytes at a
// time. For that `left` is stored transposed, as left[k][m]. Lanes are arranged 2 x LANES_N in the
// warp's tile, and then the next two groups of rows, so that the lanes that one access serves share
// most of their addresses.
//
// What limits the speed is the register file. It has two banks, of the even and the odd registers,
// and reads one register of each in a cycle; a multiply-add has three operands, so one of them must
// be reused from the instruction before, and the other two must be in different banks. Groups of
// four that do not depend on k let the compiler arrange that (so `left` is transposed), and so does
// the order of the multiply-adds: down a column, up the next.
//
// Where all lanes share the same few rows, `left` is not transposed, and a load takes four terms of
// a row.
//
// A tile that has too few outputs for 32 lanes is computed by two teams of sixteen, which take
// every other term; their sums are added in the end.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

// The outputs of one of WarpsM x WarpsN warps, which share a tile. `Depth` terms at most of a
// slice of TileK are multiplied, by Teams of lanes.
template <int TileM, int TileN, int TileK, int WarpsM, int WarpsN, int ThreadM, int Depth = TileK,
          int Teams = 1>
struct WarpFmaOutputs {
  static constexpr int DEPTH = Depth, TEAM = 32 / Teams;
  static constexpr int WARP_M = TileM / WarpsM, WARP_N = TileN / WarpsN;
  static constexpr int LANES_M = WARP_M / ThreadM;
  static constexpr int LANES_N = TEAM / LANES_M;
  static constexpr int THREAD_N = WARP_N / LANES_N;
  static_assert(TileM == WARP_M * WarpsM && TileN == WARP_N * WarpsN, "warps share the tile");
  static_assert(WARP_M == LANES_M * ThreadM && WARP_N == LANES_N * THREAD_N, "whole lanes");
  static constexpr bool LEFT_BY_TERM = LANES_M > 1;
  static constexpr int LEFT_PITCH = LEFT_BY_TERM ? (TileM + 4) * 4 : (TileK / 4 | 1) * 16;
  static constexpr int RIGHT_PITCH = (TileN + 4) * 4;  // where columns of dense are copied k by k
  static constexpr int AT_ONCE = LEFT_BY_TERM ? 4 : ThreadM;
  static constexpr int PART_ROWS = AT_ONCE * LANES_M;  // that are staged at once: AT_ONCE of a lane
  static constexpr int PARTS = ThreadM / AT_ONCE;
  static_assert(THREAD_N % 4 == 0 && TileK % 4 == 0, "whole groups of four");
  static_assert(ThreadM % 4 == 0 || !LEFT_BY_TERM, "whole groups of four");
  static_assert(Teams == 1 || (Teams == 2 && LEFT_BY_TERM && Depth % 2 == 0), "every other term");

  f32 sum[ThreadM][THREAD_N];
  int row, col, lane_m, lane_n;  // row and col: where the warp's part starts in the tile

  __device__ __forceinline__ WarpFmaOutputs() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % TEAM;
    row = warp / WarpsN * WARP_M;
    col = warp % WarpsN * WARP_N;
    lane_m = LANES_M == 1 ? 0 : lane % 2 + lane / (2 * LANES_N) * 2;
    lane_n = LANES_M == 1 ? lane : lane / 2 % LANES_N;
#pragma unroll
    for (int i = 0; i < ThreadM; ++i)
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j) sum[i][j] = 0.0f;
  }

  // Add the products of one slice's first `terms` terms. load() goes between the first loads from
  // shared memory and their use: it starts the copies of a later slice.
  template <typename Load>
  __device__ __forceinline__ void multiply(const unsigned char* left, const unsigned char* right,
                                           int terms, Load load) {
    left += LEFT_BY_TERM ? (row + 4 * lane_m) * 4 : row * LEFT_PITCH;
    right += (col + 4 * lane_n) * 4;
    if constexpr (Teams > 1) {
      left += team() * LEFT_PITCH;
      right += team() * RIGHT_PITCH;
    }
    // The term that is multiplied, and the next one; of `left` that is not transposed, four each.
    constexpr int TERMS = LEFT_BY_TERM ? 1 : 4;
    f32 a[2][ThreadM * TERMS], b[2][THREAD_N];
    auto load_left = [&](int k) {
      f32* to = a[k / TERMS % 2];
#pragma unroll
      for (int i = 0; i < ThreadM; i += 4 / TERMS)
        load_four(to + i * TERMS, left + (LEFT_BY_TERM ? k * Teams * LEFT_PITCH + i * LANES_M * 4
                                                       : i * LEFT_PITCH + k * 4));
    };
    auto load_right = [&](int k) {
#pragma unroll
      for (int j = 0; j < THREAD_N; j += 4)
        load_four(b[k % 2] + j, right + k * Teams * RIGHT_PITCH + j * LANES_N * 4);
    };
    load_left(0);
    load_right(0);
    load();
#pragma unroll
    for (int k = 0; k < DEPTH / Teams; ++k) {
      if (k % 4 == 0 && k * Teams >= terms) break;
      const int next = k + (TERMS == 1 ? 1 : 3);
      if (next % TERMS == 0 && next < DEPTH / Teams) load_left(next);
      if (k + 1 < DEPTH / Teams) load_right(k + 1);
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j)
#pragma unroll
        for (int n = 0; n < ThreadM; ++n) {
          const int i = j % 2 ? ThreadM - 1 - n : n;
          sum[i][j] = fmaf(a[k / TERMS % 2][i * TERMS + k % TERMS], b[k % 2][j], sum[i][j]);
        }
    }
  }

  // Where a lane's row i is in the warp's part.
  __device__ __forceinline__ int row_of(int i) const {
    return i / 4 * (4 * LANES_M) + 4 * lane_m + i % 4;
  }

  // Put PART_ROWS rows from part * PART_ROWS on, where rows are `pitch` elements apart.
  __device__ __forceinline__ void stage(int part, f32* staged, int pitch) const {
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
      for (int j = 0; j < THREAD_N; j += 4) {
        f32 four[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          four[n] = sum[part * AT_ONCE + i][j + n];
          if constexpr (Teams > 1) four[n] += __shfl_xor_sync(~0u, four[n], TEAM);
        }
        if (Teams > 1 && team() > 0) continue;
        *reinterpret_cast<float4*>(staged + row_of(i) * pitch + 4 * lane_n + j * LANES_N) = {
            four[0], four[1], four[2], four[3]};
      }
  }

 private:
  static __device__ __forceinline__ int team() { return threadIdx.x % 32 / TEAM; }
  static __device__ __forceinline__ void load_four(f32* four, const unsigned char* from) {
    const float4 all = *reinterpret_cast<const float4*>(from);
    four[0] = all.x, four[1] = all.y, four[2] = all.z, four[3] = all.w;
  }
};

}  // namespace sparsegpu
