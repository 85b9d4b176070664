// Sparse times sparse in float64 on tensor cores, blocks of more than eight rows or columns:
// common/pairs_full_precision.cuh, to be read first, copies the operands to shared memory; here
// they are multiplied (common/warp_mma_f64.cuh).
//
// -DT is f64, and there is no -DTHREAD_M and no -DTEAMS; -DLEFT=vectors|rows says how threads copy
// left[m][k]. The other names are those of bsr_spgemm_f32.cu.
#include "common/pairs_full_precision.cuh"
#include "common/warp_mma_f64.cuh"

using namespace sparsegpu;

struct Config {
  typedef T Element;
  typedef OUT Out;
  typedef PAIR Pair;
  typedef WarpMmaF64Outputs<TILE_M, TILE_N, TILE_K, WARPS_M, WARPS_N> Outputs;
  static constexpr int bm = BM, bk = BK, bn = BN;
  static constexpr int tile_m = TILE_M, tile_n = TILE_N, tile_k = TILE_K;
  static constexpr int stages = STAGES, warps = WARPS_M * WARPS_N;
  static constexpr CopyOrder left_order = CopyOrder::LEFT, right_order = CopyOrder::RIGHT;
};
typedef PairsFullPrecision<Config> Product;

extern "C" __global__ void __launch_bounds__(Product::THREADS, RESIDENT)
    bsr_spgemm_f64_tiled(OUT* out, const T* a, const T* b, const long long* starts,
                         const PAIR* pairs, const __grid_constant__ PairsProblem problem) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  Product::run(dynamic, out, a, b, starts, pairs, problem);
}
