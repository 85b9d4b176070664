// Products of float32 blocks, added where index lists say, by multiply-adds:
// common/scatter_full_precision.cuh, to be read first, copies the operands to shared memory; here
// they are multiplied (common/warp_fma.cuh).
//
// -DT (f32), -DINDEX, -DFORMAT, -DOUT, -DEPILOGUE, -DGROUP_SIZE as in scatter_mm_simt.cu; -DKS
// columns of a block
//   -DBLOCKS=columns|vectors|rows  how threads copy left[k][m], -DOTHERS right[k][n] (CopyOrder)
//   -DTILE_M, -DTILE_N outputs of a thread block, shared by WARPS_M x WARPS_N warps; -DTHREAD_M
//   rows of a lane; -DTEAMS of lanes, which share the terms; -DTILE_K, -DSTAGES; -DRESIDENT thread
//   blocks that a multiprocessor is to hold
#include "common/kernel_epilogue.cuh"
#include "common/scatter_full_precision.cuh"
#include "common/warp_fma.cuh"

using namespace sparsegpu;

struct Config {
  typedef T Element;
  typedef INDEX Index;
  typedef KernelEpilogue<T, OUT> Op;
  typedef WarpFmaOutputs<TILE_M, TILE_N, TILE_K, WARPS_M, WARPS_N, THREAD_M, TILE_K, TEAMS> Outputs;
  static constexpr ListFormat format = ListFormat::FORMAT;
  static constexpr int ks = KS, tile_m = TILE_M, tile_n = TILE_N, tile_k = TILE_K;
  static constexpr int stages = STAGES, warps = WARPS_M * WARPS_N, group_size = GROUP_SIZE;
  static constexpr CopyOrder left_order = CopyOrder::BLOCKS;
  static constexpr CopyOrder right_order = CopyOrder::OTHERS;
};
typedef ScatterFullPrecision<Config> Product;

// The arguments are those of scatter_mm_simt.
extern "C" __global__ void __launch_bounds__(Product::THREADS, RESIDENT)
    scatter_mm_f32(const __grid_constant__ View accumulators, const __grid_constant__ View blocks,
                   const __grid_constant__ View others, const __grid_constant__ Lists<INDEX> lists,
                   const __grid_constant__ Batch batch,
                   const __grid_constant__ ScatterProblem problem,
                   const __grid_constant__ KernelEpilogueArgs<T> epilogue) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  Product::run(dynamic, accumulators, blocks, others, lists, batch, problem, epilogue);
}
