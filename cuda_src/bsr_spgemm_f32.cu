// Sparse times sparse in float32, by multiply-adds: common/pairs_full_precision.cuh, to be read
// first, copies the operands to shared memory; here they are multiplied (common/warp_fma.cuh).
//
//   -DT (f32), -DOUT, -DPAIR as in bsr_spgemm_simt.cu; -DBM, -DBK, -DBN the blocks
//   -DRIGHT=vectors|rows  how threads copy right[k][n] (CopyOrder); left[k][m] goes by columns
//   -DTILE_M, -DTILE_N outputs of a thread block, shared by WARPS_M x WARPS_N warps; -DTHREAD_M
//   rows of a lane; -DTEAMS of lanes, which share the terms; -DTILE_K, -DSTAGES; -DRESIDENT thread
//   blocks that a multiprocessor is to hold
#include "common/pairs_full_precision.cuh"
#include "common/warp_fma.cuh"

using namespace sparsegpu;

struct Config {
  typedef T Element;
  typedef OUT Out;
  typedef PAIR Pair;
  typedef WarpFmaOutputs<TILE_M, TILE_N, TILE_K, WARPS_M, WARPS_N, THREAD_M, TILE_K, TEAMS> Outputs;
  static constexpr int bm = BM, bk = BK, bn = BN;
  static constexpr int tile_m = TILE_M, tile_n = TILE_N, tile_k = TILE_K;
  static constexpr int stages = STAGES, warps = WARPS_M * WARPS_N;
  static constexpr CopyOrder left_order = CopyOrder::columns, right_order = CopyOrder::RIGHT;
};
typedef PairsFullPrecision<Config> Product;

extern "C" __global__ void __launch_bounds__(Product::THREADS, RESIDENT)
    bsr_spgemm_f32(OUT* out, const T* a, const T* b, const long long* starts, const PAIR* pairs,
                   const __grid_constant__ PairsProblem problem) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  Product::run(dynamic, out, a, b, starts, pairs, problem);
}
