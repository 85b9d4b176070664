// The groups of each matrix in descending order of their counts; of equal counts the lower number
// comes first.
//
// A warp finds the rank of one group by comparing it with all the others: for the thousands of row
// groups of a matrix (bsr_schedule.cu) that is one short launch, where a sort takes several.

#include "bsr_schedule/rank_descending.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_schedule_order(int* order, const int* counts, int groups, int groups_per_matrix) {
  for (long long i = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; i < groups;
       i += (long long)gridDim.x * (THREADS / 32)) {
    rank_descending(order, counts, (int)i, groups_per_matrix);
  }
}
