// Sparse times sparse of small float64 blocks on tensor cores, several blocks in one product.
//
// The instruction multiplies 8 x 4 by 4 x 8. A warp takes PACKED = 8 / max(BM, BN) blocks of the
// result: SIDE rows of the left operand and SIDE columns of the right one are those of one block,
// so that the blocks on the diagonal of the 8 x 8 sums are the results, and what lies beside them
// is not used. Each block goes through the terms of its own pairs, four at a time, and a pair may
// begin within four; where its terms have ended, its operands are zero.
//
// A lane reads one element of either operand for four terms: with 3 x 3 blocks a warp reads some
// 0.75 times for a pair, where a thread for each element reads twice.
//
// -DT is f64; the other names are those of bsr_spgemm_small.cu.
#include "common/block_pairs.cuh"
#include "common/ceil_div.cuh"
#include "ptx/mma.cuh"

using namespace sparsegpu;

constexpr int WARPS = 4, SIDE = BM > BN ? BM : BN, PACKED = 8 / SIDE;
static_assert(SIDE <= 8, "a block fits the fragments");

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    bsr_spgemm_f64(OUT* out, const T* a, const T* b, const long long* starts, const PAIR* pairs,
                   const __grid_constant__ PairsProblem problem) {
  const int lane = threadIdx.x % 32, group = lane / 4, t = lane % 4;
  const int within = group / SIDE, side = group % SIDE;  // which block, its row and its column
  const bool has_row = within < PACKED && side < BM, has_col = within < PACKED && side < BN;
  const long long step = (long long)gridDim.x * WARPS * PACKED;
  for (long long x = ((long long)blockIdx.x * WARPS + threadIdx.x / 32) * PACKED;
       x < problem.blocks; x += step) {
    const long long g = problem.first + x + within;
    const bool there = within < PACKED && x + within < problem.blocks;
    const long long begin = there ? starts[g] - problem.base : 0;
    const int count = there ? int(starts[g + 1] - problem.base - begin) : 0;
    int most = count;
#pragma unroll
    for (int mask = 16; mask > 2; mask /= 2) most = max(most, __shfl_xor_sync(~0u, most, mask));
    const PAIR* pair = pairs + 2 * (begin + t / BK);
    int left = count - t / BK, k = t % BK;  // pairs that are left, and the term of the first
    f64 sum[2] = {0, 0};
    const long long steps = ceil_div((long long)most * BK, 4);
#pragma unroll 4
    for (long long s = 0; s < steps; ++s) {
      f64 x = 0, y = 0;
      if (left > 0) {
        if (has_row) x = a[(long long)pair[0] * (BM * BK) + side * BK + k];
        if (has_col) y = b[(long long)pair[1] * (BK * BN) + k * BN + side];
      }
      mma_f64_m8n8k4(sum, x, y);
      k += 4;
#pragma unroll
      for (int passed = 0; passed < (3 + BK) / BK && k >= BK; ++passed) {
        k -= BK;
        pair += 2;
        --left;
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int col = 2 * t + i - within * SIDE;
      if (there && has_row && col >= 0 && col < BN) out[g * (BM * BN) + side * BN + col] = sum[i];
    }
  }
}
