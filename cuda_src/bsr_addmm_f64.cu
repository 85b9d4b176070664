// BSR @ dense in float64, on tensor cores: common/full_precision_tile.cuh, to be read first, copies
// the operands to shared memory; here they are multiplied.
//
// The tensor cores multiply a (16 x 8) by b (8 x 8). Here `a` is the dense operand, transposed, and
// `b` the block: so neighbouring registers of a fragment are neighbours in shared memory, too, and
// a warp may have any multiple of eight rows. Which term is called k, and which column of dense is
// called row of a, is free; with g = lane / 4 and t = lane % 4 (ptx/mma.cuh),
//
//   k = t and t + 4        stand for terms 2t and 2t + 1 of eight,
//   rows g and g + 8 of a  stand for columns 2g and 2g + 1 of sixteen,
//
// so that all loads take 16 bytes. Eight lanes, which one access serves, read 2 rows x 64 bytes of
// `left` or 4 rows (every other one) x 32 bytes of `right`: both are padded to spread over all
// banks.
//
// -DT is f64; the other names are those of bsr_addmm_f32.cu.
#include "common/full_precision_tile.cuh"
#include "common/kernel_epilogue.cuh"
#include "ptx/mma.cuh"

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
  static constexpr int DEPTH = TILE_K;  // terms of a slice that are multiplied, zeros included
  static constexpr bool LEFT_BY_TERM = false;
  static constexpr int LEFT_PITCH = TILE_K * 8 + (TILE_K % 16 == 0 ? 64 : 0);
  static constexpr int RIGHT_PITCH = (TILE_N + 2) * 8;
  static_assert(WARP_M % 8 == 0 && WARP_N % 16 == 0, "a warp multiplies 8 x 16 outputs at a time");
  static_assert(TILE_K % 8 == 0 && TILE_N % 8 == 0, "eight terms at a time");
  typedef Product::StagedRows<8> Rows;

  f64 sum[WARP_M / 8][WARP_N / 16][4] = {};
  int row, col, g, t;  // row and col: where the warp's part starts in the tile

  __device__ __forceinline__ WarpOutputs() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row = warp / WARPS_N * WARP_M;
    col = warp % WARPS_N * WARP_N;
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
    for (int k = 0; k < TILE_K; k += 8) {
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

  static __device__ __forceinline__ void load_two(f64* two, const unsigned char* from) {
    const double2 both = *reinterpret_cast<const double2*>(from);
    two[0] = both.x, two[1] = both.y;
  }

  // Write the warp's outputs, through its staging buffer.
  __device__ __forceinline__ void finish(unsigned char* buffers,
                                         const Product::Destination& to) const {
    const Rows staged(buffers);
#pragma unroll
    for (int i = 0; i < WARP_M / 8; ++i) {
#pragma unroll
      for (int j = 0; j < WARP_N / 16; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          *reinterpret_cast<double2*>(staged.at + (2 * t + r) * staged.PITCH + 16 * j + 2 * g) =
              make_double2(sum[i][j][r], sum[i][j][r + 2]);
      staged.write_all(row + 8 * i, col, to);
    }
  }
};

extern "C" __global__ void __launch_bounds__(Product::THREADS, RESIDENT)
    bsr_addmm_f64(const __grid_constant__ View out, const __grid_constant__ View rows,
                  const __grid_constant__ View indptr, const __grid_constant__ View indices,
                  const __grid_constant__ View order, const __grid_constant__ View data,
                  const __grid_constant__ View dense, const __grid_constant__ Batch batch,
                  const __grid_constant__ FullPrecisionProblem problem,
                  const __grid_constant__ KernelEpilogueArgs<T> epilogue) {
  extern __shared__ __align__(16) unsigned char stages[];
  Product::run<WarpOutputs>(stages, out, rows, indptr, indices, order, data, dense, batch, problem,
                            epilogue);
}
