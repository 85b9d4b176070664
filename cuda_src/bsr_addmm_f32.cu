// BSR @ dense in float32, by multiply-adds: common/full_precision_tile.cuh, to be read first,
// copies the operands to shared memory; here they are multiplied.
//
// A lane keeps THREAD_M x THREAD_N outputs in registers, as groups of four neighbouring rows and of
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
//   -DT (f32), -DINDEX, -DOUT, -DEPILOGUE, -DACT   as in bsr_addmm_simt.cu; -DBM, -DBK the block
//   -DTRANSPOSED=1                  the product with the transpose of the matrix
//   -DDATA, -DDENSE=vectors|rows|columns           how threads copy the operands (CopyOrder)
//   -DTILE_M, -DTILE_N outputs of a thread block, shared by WARPS_M x WARPS_N warps; -DTHREAD_M
//   rows of a lane; -DTILE_K, -DSTAGES; -DRESIDENT thread blocks that a multiprocessor is to hold
#include "common/full_precision_tile.cuh"
#include "common/kernel_epilogue.cuh"

using namespace sparsegpu;

struct Config {
  typedef T Element;
  typedef INDEX Index;
  typedef KernelEpilogue<T, OUT> Op;
  static constexpr int bm = BM, bk = BK, stages = STAGES;
  static constexpr int tile_m = TILE_M, tile_n = TILE_N, tile_k = TILE_K;
  static constexpr int warps_m = WARPS_M, warps_n = WARPS_N;
  static constexpr CopyOrder data_order = CopyOrder::DATA, dense_order = CopyOrder::DENSE;
  static constexpr bool transposed = TRANSPOSED;
};
typedef FullPrecisionProduct<Config> Product;
constexpr int WARP_M = Product::WARP_M, WARP_N = Product::WARP_N;

// The outputs of one warp.
struct WarpOutputs {
  static constexpr int DEPTH = BK < TILE_K ? BK : TILE_K;  // terms of a slice
  static constexpr int LANES_M = WARP_M / THREAD_M;
  static constexpr int LANES_N = 32 / LANES_M;
  static constexpr int THREAD_N = WARP_N / LANES_N;
  static_assert(WARP_M == LANES_M * THREAD_M && WARP_N == LANES_N * THREAD_N, "whole lanes");
  static constexpr bool LEFT_BY_TERM = LANES_M > 1;
  static constexpr int LEFT_PITCH = LEFT_BY_TERM ? (TILE_M + 4) * 4 : (TILE_K / 4 | 1) * 16;
  static constexpr int RIGHT_PITCH = (TILE_N + 4) * 4;  // where columns of dense are copied k by k
  static constexpr int AT_ONCE =
      LEFT_BY_TERM ? 4 : THREAD_M;  // rows of a lane that are staged at once
  static_assert(THREAD_N % 4 == 0 && TILE_K % 4 == 0, "whole groups of four");
  static_assert(THREAD_M % 4 == 0 || !LEFT_BY_TERM, "whole groups of four");
  typedef Product::StagedRows<AT_ONCE * LANES_M> Rows;

  f32 sum[THREAD_M][THREAD_N];
  int row, col, lane_m, lane_n;  // row and col: where the warp's part starts in the tile

  __device__ __forceinline__ WarpOutputs() {
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
  // shared memory and their use: it starts the copies of a later slice.
  template <typename Load>
  __device__ __forceinline__ void multiply(const unsigned char* left, const unsigned char* right,
                                           int terms, Load load) {
    left += LEFT_BY_TERM ? (row + 4 * lane_m) * 4 : row * LEFT_PITCH;
    right += (col + 4 * lane_n) * 4;
    // The term that is multiplied, and the next one; of `left` that is not transposed, four each.
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

  // Write the warp's outputs: directly where a lane's four columns are one vector of the output,
  // else through the warp's staging buffer.
  __device__ __forceinline__ void finish(unsigned char* buffers,
                                         const Product::Destination& to) const {
    if (Config::Op::IDENTITY && to.vectorized() && row + WARP_M <= to.rows &&
        col + WARP_N <= to.columns) {
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4)
          to.write_vector(row + row_of(i), col + 4 * lane_n + j * LANES_N, sum[i] + j);
      return;
    }
    const Rows staged(buffers);
#pragma unroll
    for (int i = 0; i < THREAD_M; i += AT_ONCE) {
#pragma unroll
      for (int ii = 0; ii < AT_ONCE; ++ii)
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
          const f32* four = sum[i + ii] + j;
          const int m = row_of(ii), n = 4 * lane_n + j * LANES_N;
          *reinterpret_cast<float4*>(staged.at + m * staged.PITCH + n) =
              make_float4(four[0], four[1], four[2], four[3]);
        }
      staged.write_all(row + i * LANES_M, col, to);
    }
  }
};

extern "C" __global__ void __launch_bounds__(Product::THREADS, RESIDENT)
    bsr_addmm_f32(const __grid_constant__ View out, const __grid_constant__ View rows,
                  const __grid_constant__ View indptr, const __grid_constant__ View indices,
                  const __grid_constant__ View order, const __grid_constant__ View data,
                  const __grid_constant__ View dense, const __grid_constant__ Batch batch,
                  const __grid_constant__ FullPrecisionProblem problem,
                  const __grid_constant__ KernelEpilogueArgs<T> epilogue) {
  extern __shared__ __align__(16) unsigned char stages[];
  Product::run<WarpOutputs>(stages, out, rows, indptr, indices, order, data, dense, batch, problem,
                            epilogue);
}
