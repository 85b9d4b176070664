// BSR @ dense in float64, on tensor cores: common/full_precision_tile.cuh, to be read first, copies
// the operands to shared memory; here they are multiplied (common/warp_mma_f64.cuh).
//
// -DT is f64; the other names are those of bsr_addmm_f32.cu.
#include "common/full_precision_tile.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/warp_mma_f64.cuh"

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

// The outputs of one warp.
struct WarpOutputs : WarpMmaF64Outputs<TILE_M, TILE_N, TILE_K, WARPS_M, WARPS_N> {
  typedef Product::StagedRows<PART_ROWS> Rows;

  // Write the warp's outputs, through its staging buffer.
  __device__ __forceinline__ void finish(unsigned char* buffers,
                                         const Product::Destination& to) const {
    const Rows staged(buffers);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      stage(part, staged.at, staged.PITCH);
      staged.write_all(row + part * PART_ROWS, col, to);
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
