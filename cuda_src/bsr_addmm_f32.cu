// BSR @ dense in float32, by multiply-adds: common/block_rows.cuh, to be read first, brings the
// operands; here they are multiplied.
//
// A lane keeps THREAD_M x THREAD_N outputs in registers, in pieces of four neighbouring rows and
// columns, and reads for each k as many pieces of both operands, 16 bytes at a time. For that
// `left` lies turned round, as left[k][m]. Lanes lie 2 x LANES_N in the warp's tile, and then the
// next two pieces of rows, so that those that one access serves share most places.
//
// What limits the speed is the register file. It has two banks, of the even and the odd registers,
// and reads one register of each in a cycle; a multiply-add has three operands, so that one must
// still be there from the instruction before, and the other two be in different banks. Pieces of
// four that do not depend on k give the compiler what it needs to arrange that (so `left` turned
// round), and so does the order of the multiply-adds: down a column, up the next.
//
// Where all lanes have the same few rows, `left` stays as it is, and four terms of a row are a
// piece.
//
// -DTHREAD_M; the others as in common/block_rows.cuh.
#include "common/block_rows.cuh"

using namespace sparsegpu;

// The outputs of one warp.
struct Outputs {
  static constexpr int DEPTH = BK < TILE_K ? BK : TILE_K;  // terms of a slice
  static constexpr int LANES_M = WARP_M / THREAD_M;
  static constexpr int LANES_N = 32 / LANES_M;
  static constexpr int THREAD_N = WARP_N / LANES_N;
  static_assert(WARP_M == LANES_M * THREAD_M && WARP_N == LANES_N * THREAD_N, "whole lanes");
  static constexpr bool LEFT_BY_TERM = LANES_M > 1;
  static constexpr int LEFT_PITCH = LEFT_BY_TERM ? (TILE_M + 4) * 4 : (TILE_K / 4 | 1) * 16;
  static constexpr int RIGHT_PITCH = (TILE_N + 4) * 4;         // for columns that come k by k
  static constexpr int AT_ONCE = LEFT_BY_TERM ? 4 : THREAD_M;  // of a lane's rows, in a strip
  static_assert(THREAD_N % 4 == 0 && TILE_K % 4 == 0, "whole pieces");
  static_assert(THREAD_M % 4 == 0 || !LEFT_BY_TERM, "whole pieces");
  typedef Strip<AT_ONCE * LANES_M> Rows;

  f32 sum[THREAD_M][THREAD_N];
  int row, col, lane_m, lane_n;  // row and col: where the warp's part starts in the tile

  __device__ __forceinline__ Outputs() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row = warp / WARPS_N * WARP_M;
    col = warp % WARPS_N * WARP_N;
    lane_m = LANES_M == 1 ? 0 : lane % 2 + lane / (2 * LANES_N) * 2;
    lane_n = LANES_M == 1 ? lane : lane / 2 % LANES_N;
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j) sum[i][j] = 0.0f;
  }

  // Add the products of one slice's first `terms` terms. load() goes between the first loads from
  // shared memory and their use: it asks for a later slice.
  template <typename Load>
  __device__ __forceinline__ void multiply(const unsigned char* left, const unsigned char* right,
                                           int terms, Load load) {
    left += LEFT_BY_TERM ? (row + 4 * lane_m) * 4 : row * LEFT_PITCH;
    right += (col + 4 * lane_n) * 4;
    // The terms that are multiplied, and those to come: one at a time, or four of `left`.
    constexpr int TERMS = LEFT_BY_TERM ? 1 : 4;
    f32 a[2][THREAD_M * TERMS], b[2][THREAD_N];
    auto load_left = [&](int k) {
      f32* to = a[k / TERMS % 2];
#pragma unroll
      for (int i = 0; i < THREAD_M; i += 4 / TERMS)
        load_four(to + i * TERMS, left + (LEFT_BY_TERM ? k * LEFT_PITCH + i * LANES_M * 4
                                                       : i * LEFT_PITCH + k * 4));
    };
    auto load_right = [&](int k) {
#pragma unroll
      for (int j = 0; j < THREAD_N; j += 4)
        load_four(b[k % 2] + j, right + k * RIGHT_PITCH + j * LANES_N * 4);
    };
    load_left(0);
    load_right(0);
    load();
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      if (k % 4 == 0 && k >= terms) break;
      const int next = k + (TERMS == 1 ? 1 : 3);
      if (next % TERMS == 0 && next < DEPTH) load_left(next);
      if (k + 1 < DEPTH) load_right(k + 1);
#pragma unroll
      for (int j = 0; j < THREAD_N; ++j)
#pragma unroll
        for (int n = 0; n < THREAD_M; ++n) {
          const int i = j % 2 ? THREAD_M - 1 - n : n;
          sum[i][j] = fmaf(a[k / TERMS % 2][i * TERMS + k % TERMS], b[k % 2][j], sum[i][j]);
        }
    }
  }

  static __device__ __forceinline__ void load_four(f32* four, const unsigned char* from) {
    const float4 all = *reinterpret_cast<const float4*>(from);
    four[0] = all.x, four[1] = all.y, four[2] = all.z, four[3] = all.w;
  }

  // Where a lane's row i is in the warp's part.
  __device__ __forceinline__ int row_of(int i) const {
    return i / 4 * (4 * LANES_M) + 4 * lane_m + i % 4;
  }

  // Write the warp's outputs: as they are where a lane's are whole pieces already, else through the
  // warp's strip of shared memory.
  __device__ __forceinline__ void finish(unsigned char* strips, const Destination& to) const {
    if (KernelEpilogue<T, OUT>::IDENTITY && to.in_pieces() && row + WARP_M <= to.rows &&
        col + WARP_N <= to.columns) {
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4)
          to.write_piece(row + row_of(i), col + 4 * lane_n + j * LANES_N, sum[i] + j);
      return;
    }
    const Rows strip(strips);
#pragma unroll
    for (int i = 0; i < THREAD_M; i += AT_ONCE) {
#pragma unroll
      for (int ii = 0; ii < AT_ONCE; ++ii)
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
          const f32* four = sum[i + ii] + j;
          const int m = row_of(ii), n = 4 * lane_n + j * LANES_N;
          *reinterpret_cast<float4*>(strip.at + m * strip.PITCH + n) =
              make_float4(four[0], four[1], four[2], four[3]);
        }
      strip.write_all(row + i * LANES_M, col, to);
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    bsr_addmm_f32(const __grid_constant__ View out, const __grid_constant__ View rows,
                  const __grid_constant__ View indptr, const __grid_constant__ View indices,
                  const __grid_constant__ View order, const __grid_constant__ View data,
                  const __grid_constant__ View dense, const __grid_constant__ Batch batch,
                  const __grid_constant__ Sizes sizes,
                  const __grid_constant__ KernelEpilogueArgs<T> epilogue) {
  extern __shared__ __align__(16) unsigned char stages[];
  multiply_block_rows<Outputs>(stages, out, rows, indptr, indices, order, data, dense, batch, sizes,
                               epilogue);
}
