// BSR @ dense in float32, by multiply-adds: common/full_precision_tile.cuh, to be read first,
// copies the operands to shared memory; here they are multiplied (common/warp_fma.cuh).
//
//   -DT (f32), -DINDEX, -DOUT, -DEPILOGUE, -DACT   as in bsr_addmm_simt.cu; -DBM, -DBK the block
//   -DTRANSPOSED=1                  the product with the transpose of the matrix
//   -DDATA, -DDENSE=vectors|rows|columns           how threads copy the operands (CopyOrder)
//   -DTILE_M, -DTILE_N outputs of a thread block, shared by WARPS_M x WARPS_N warps; -DTHREAD_M
//   rows of a lane; -DTILE_K, -DSTAGES; -DRESIDENT thread blocks that a multiprocessor is to hold
#include "common/full_precision_tile.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/warp_fma.cuh"

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
struct WarpOutputs : WarpFmaOutputs<TILE_M, TILE_N, TILE_K, WARPS_M, WARPS_N, THREAD_M,
                                    (BK < TILE_K ? BK : TILE_K)> {
  typedef Product::StagedRows<PART_ROWS> Rows;

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
    for (int part = 0; part < PARTS; ++part) {
      stage(part, staged.at, staged.PITCH);
      staged.write_all(row + part * PART_ROWS, col, to);
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
