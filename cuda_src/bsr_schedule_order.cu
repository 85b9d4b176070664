// Numbers of each matrix's groups in the order of falling counts, the lower number first where
// counts agree.
//
// A warp finds the rank of one number by comparing it with all the others: for the thousands of row
// groups of a matrix (bsr_schedule.cu) that is one short launch, where a sort takes several.

#include "common/types.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_schedule_order(int* order, const int* counts, int groups, int groups_per_matrix) {
  const int lane = threadIdx.x % 32;
  for (long long i = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; i < groups;
       i += (long long)gridDim.x * (THREADS / 32)) {
    const int mine = counts[i], first = int(i) / groups_per_matrix * groups_per_matrix;
    int rank = 0;
#pragma unroll 4
    for (int j = first + lane; j < first + groups_per_matrix; j += 32) {
      const int other = counts[j];
      rank += other > mine || (other == mine && j < i);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) rank += __shfl_xor_sync(~0u, rank, offset);
    if (lane == 0) order[first + rank] = (int)i;
  }
}
