// Sparse times sparse of small blocks, any dtype: a thread for each element of the result.
//
// Neighbouring threads have neighbouring elements of a block, and then of the next one: the reads
// of a warp are few short runs, which L1 serves. The next pair is read while one is multiplied.
// Otherwise as bsr_spgemm_simt.cu, to be read first.
//
// -DBM, -DBK, -DBN of the blocks; -DT, -DOUT, -DPAIR as there.
#include "common/block_pairs.cuh"
#include "common/types.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
constexpr int THREADS = 256, OUTPUTS = BM * BN, BLOCKS = THREADS / OUTPUTS;
static_assert(BLOCKS > 0, "a block of the result has a thread block's threads at most");

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_spgemm_small(OUT* out, const T* a, const T* b, const long long* starts, const PAIR* pairs,
                     const __grid_constant__ PairsProblem problem) {
  const int block = threadIdx.x / OUTPUTS, row = threadIdx.x % OUTPUTS / BN;
  const int col = threadIdx.x % BN;
  if (block >= BLOCKS) return;
  a += row * BK;
  b += col;
  for (long long x = (long long)blockIdx.x * BLOCKS + block; x < problem.blocks;
       x += (long long)gridDim.x * BLOCKS) {
    const long long g = problem.first + x;
    const PAIR* pair = pairs + 2 * (starts[g] - problem.base);
    const PAIR* end = pairs + 2 * (starts[g + 1] - problem.base);
    A sum = A(0);
    long long p = pair[0], q = pair[1];  // a stored block has a pair
    while (pair != end) {
      const T *left = a + p * (BM * BK), *right = b + q * (BK * BN);
      pair += 2;
      if (pair != end) p = pair[0], q = pair[1];
#pragma unroll
      for (int k = 0; k < BK; ++k) sum = fma_acc(to_acc(left[k]), to_acc(right[k * BN]), sum);
    }
    out[g * OUTPUTS + row * BN + col] = round_to<OUT>(sum);
  }
}
