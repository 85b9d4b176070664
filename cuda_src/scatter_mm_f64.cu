// Products of float64 blocks, added where index lists say, on tensor cores:
// common/scatter_full_precision.cuh, to be read first, copies the operands to shared memory; here
// they are multiplied (common/warp_mma_f64.cuh).
//
// -DT is f64, and there is no -DTHREAD_M and no -DTEAMS; -DBLOCKS is the order of left[m][k]. The
// other names are those of scatter_mm_f32.cu.
#include "common/kernel_epilogue.cuh"
#include "common/scatter_full_precision.cuh"
#include "common/warp_mma_f64.cuh"

using namespace sparsegpu;

struct Config {
  typedef T Element;
  typedef INDEX Index;
  typedef KernelEpilogue<T, OUT> Op;
  typedef WarpMmaF64Outputs<TILE_M, TILE_N, TILE_K, WARPS_M, WARPS_N> Outputs;
  static constexpr ListFormat format = ListFormat::FORMAT;
  static constexpr int ks = KS, tile_m = TILE_M, tile_n = TILE_N, tile_k = TILE_K;
  static constexpr int stages = STAGES, warps = WARPS_M * WARPS_N, group_size = GROUP_SIZE;
  static constexpr CopyOrder left_order = CopyOrder::BLOCKS;
  static constexpr CopyOrder right_order = CopyOrder::OTHERS;
};
typedef ScatterFullPrecision<Config> Product;

// The arguments are those of scatter_mm_simt.
extern "C" __global__ void __launch_bounds__(Product::THREADS, RESIDENT)
    scatter_mm_f64(const __grid_constant__ View accumulators, const __grid_constant__ View blocks,
                   const __grid_constant__ View others, const __grid_constant__ Lists<INDEX> lists,
                   const __grid_constant__ Batch batch,
                   const __grid_constant__ ScatterProblem problem,
                   const __grid_constant__ KernelEpilogueArgs<T> epilogue) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  Product::run(dynamic, accumulators, blocks, others, lists, batch, problem, epilogue);
}
