// Where the blocks and the pairs of every row of a product of two block patterns end, among those
// of all rows, from how many there are in each: one thread block, which goes through the rows once.
#include "common/warp_reduce.cuh"

using namespace sparsegpu;

constexpr int THREADS = 1024, WARPS = THREADS / 32;
constexpr int EACH = 4;  // neighbouring rows of a thread
static_assert(WARPS == 32, "a lane takes the sum of a warp");

struct Counts {
  long long blocks, pairs;
};

__device__ __forceinline__ Counts operator+(Counts a, Counts b) {
  return {a.blocks + b.blocks, a.pairs + b.pairs};
}

__device__ __forceinline__ Counts shuffle(Counts x, int from) {
  return {sparsegpu::shuffle(x.blocks, from), sparsegpu::shuffle(x.pairs, from)};
}

// The sum of this lane's and all lower lanes'.
__device__ __forceinline__ Counts sum_of_lanes(Counts x) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const Counts lower = shuffle(x, lane - step);
    if (lane >= step) x = x + lower;
  }
  return x;
}

// blocks, pairs: of every row, which become their sums up to and with that row. facts: blocks of
// the matrix with fewest and with most, pairs of all, 0.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_spgemm_ends(long long* blocks, long long* pairs, long long* facts, long long rows,
                    long long block_rows) {
  __shared__ Counts of_warp[WARPS];
  __shared__ unsigned long long most, least_inverted;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) most = least_inverted = 0;
  Counts before = {0, 0};  // of the rows up to here
  for (long long base = 0; base < rows; base += THREADS * EACH) {
    const long long first = base + threadIdx.x * EACH;
    Counts mine[EACH], sum = {0, 0};
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      if (first + i < rows) sum = sum + Counts{blocks[first + i], pairs[first + i]};
      mine[i] = sum;
    }
    const Counts of_lanes = sum_of_lanes(sum);
    if (lane == 31) of_warp[warp] = of_lanes;
    __syncthreads();
    const Counts of_warps = sum_of_lanes(of_warp[lane]);
    const Counts lower_warps = shuffle(of_warps, warp - 1), all = shuffle(of_warps, 31);
    const Counts lower_lanes = shuffle(of_lanes, lane - 1);
    Counts start = before;
    if (warp > 0) start = start + lower_warps;
    if (lane > 0) start = start + lower_lanes;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      if (first + i < rows) {
        blocks[first + i] = start.blocks + mine[i].blocks;
        pairs[first + i] = start.pairs + mine[i].pairs;
      }
    }
    before = before + all;
    __syncthreads();  // the sums of the warps are no longer read
  }
  for (long long end = (threadIdx.x + 1LL) * block_rows; end <= rows; end += THREADS * block_rows) {
    const long long start = end == block_rows ? 0 : blocks[end - block_rows - 1];
    const unsigned long long of_matrix = blocks[end - 1] - start;
    atomicMax(&most, of_matrix);
    atomicMax(&least_inverted, ~of_matrix);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    facts[0] = ~least_inverted;
    facts[1] = most;
    facts[2] = before.pairs;
    facts[3] = 0;
  }
}
