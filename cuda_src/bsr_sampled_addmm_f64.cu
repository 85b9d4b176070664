// Dense @ dense at the stored blocks in float64, on tensor cores:
// common/sampled_full_precision.cuh, to be read first, copies the operands to shared memory; here
// they are multiplied (common/warp_mma_f64.cuh).
//
// -DT is f64, and there is no -DTHREAD_M; the other names are those of bsr_sampled_addmm_f32.cu.
// MAT1 is the order of left[m][k]: vectors then run along k, which is a whole number of them.
#include "common/kernel_epilogue.cuh"
#include "common/sampled_full_precision.cuh"
#include "common/warp_mma_f64.cuh"

using namespace sparsegpu;

struct Config {
  typedef T Element;
  typedef INDEX Index;
  typedef KernelEpilogue<T, OUT> Op;
  typedef WarpMmaF64Outputs<TILE_M, TILE_N, TILE_K, WARPS_M, WARPS_N> Outputs;
  static constexpr int bm = BM, bn = BN, stages = STAGES, warps = WARPS_M * WARPS_N;
  static constexpr int tile_m = TILE_M, tile_n = TILE_N, tile_k = TILE_K;
  static constexpr CopyOrder mat1_order = CopyOrder::MAT1, mat2_order = CopyOrder::MAT2;
};
typedef SampledFullPrecision<Config> Product;

extern "C" __global__ void __launch_bounds__(Product::THREADS, RESIDENT)
    bsr_sampled_addmm_f64(const __grid_constant__ View out, const __grid_constant__ View indptr,
                          const __grid_constant__ View indices, const __grid_constant__ View mat1,
                          const __grid_constant__ View mat2, const __grid_constant__ Batch batch,
                          const __grid_constant__ SampledProblem problem,
                          const __grid_constant__ KernelEpilogueArgs<T> epilogue) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  Product::run(dynamic, out, indptr, indices, mat1, mat2, batch, problem, epilogue);
}
