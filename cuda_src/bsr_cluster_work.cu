// What every thread block of bsr_addmm_skinny_sm90.cu does, computed once a pattern
// (bsr_addmm_skinny_sm90/cluster_work.cuh).
//
// Clusters of CLUSTER thread blocks take ROWS_PER_CLUSTER row tiles each. Row tiles are in LPT
// order (longest first) and assigned to the clusters in a zigzag, so that a cluster gets long and
// short ones:
//
//     cluster   0      1      2     ...           row tiles 0, 1, 2, ..., the longest first
//     takes     0      1      2     ...  c - 1
//             2c - 1  2c - 2  ...        c
//
// Each row tile has a thread block; each of the others goes to the row tile with most steps a
// thread block. The steps of a row tile are split into even runs. A thread writes one work item.
//
// -DINDEX: of the pattern (s32, s64); -DCLUSTER, -DROWS_PER_CLUSTER; -DSLICES_M: row tiles of a
// block, -DSLICES_K: steps of a block.
#include "bsr_addmm_skinny_sm90/cluster_work.cuh"
#include "common/ceil_div.cuh"
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;
static_assert(ROWS_PER_CLUSTER <= CLUSTER, "every row tile has a thread block");

// The row tiles of a cluster, and how many thread blocks each gets.
struct Assignment {
  int row_tile[ROWS_PER_CLUSTER], steps[ROWS_PER_CLUSTER], splits[ROWS_PER_CLUSTER];

  // Of cluster number c; `order` are the block rows, the longest first.
  __device__ __forceinline__ Assignment(const INDEX* order, const INDEX* indptr, long long c,
                                        long long clusters, long long row_tiles) {
    int idle = CLUSTER;
#pragma unroll
    for (int g = 0; g < ROWS_PER_CLUSTER; ++g) {
      const long long at = g % 2 ? (g + 1) * clusters - 1 - c : g * clusters + c;
      splits[g] = at < row_tiles;
      idle -= splits[g];
      const long long row = splits[g] ? order[at / SLICES_M] : 0;
      row_tile[g] = int(row * SLICES_M + at % SLICES_M);
      steps[g] = int(indptr[row + 1] - indptr[row]) * SLICES_K;
    }
    for (; idle; --idle) {
      int most = -1, most_steps = 1;
#pragma unroll
      for (int g = 0; g < ROWS_PER_CLUSTER; ++g) {
        const int per_block = splits[g] ? ceil_div(steps[g], splits[g]) : 0;
        if (per_block > most_steps) most = g, most_steps = per_block;
      }
#pragma unroll
      for (int g = 0; g < ROWS_PER_CLUSTER; ++g) splits[g] += g == most;
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_cluster_work(ClusterWork* work, const INDEX* order, const INDEX* indptr,
                     const INDEX* indices, long long matrices, long long block_rows,
                     long long nnzb) {
  const long long row_tiles = block_rows * SLICES_M;
  const long long clusters = ceil_div(row_tiles, ROWS_PER_CLUSTER);
  const long long count = matrices * clusters * CLUSTER;
  for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count;
       i += (long long)gridDim.x * THREADS) {
    const long long cluster = i / CLUSTER, b = cluster / clusters;
    const INDEX* starts = indptr + b * (block_rows + 1);
    const Assignment assigned(order + b * block_rows, starts, cluster % clusters, clusters,
                              row_tiles);
    ClusterWork::Head head = {};
    long long begin = 0;
    int first_rank = 0;
    const int rank = int(i % CLUSTER);
#pragma unroll
    for (int g = 0; g < ROWS_PER_CLUSTER; ++g) {
      const int split = rank - first_rank, splits = assigned.splits[g];
      if (split >= 0 && split < splits) {
        const int even = assigned.steps[g] / splits, more = assigned.steps[g] % splits;
        head = {assigned.row_tile[g], even + (split < more), short(split), short(splits),
                first_rank};
        begin = (long long)starts[assigned.row_tile[g] / SLICES_M] * SLICES_K +
                (long long)split * even + min(split, more);
      }
      first_rank += splits;
    }
    ClusterWork& item = work[i];
    item.head = head;
    item.begin = begin;
#pragma unroll 1
    for (int s = 0; s < WORK_COLUMNS; ++s) {
      const long long step = begin + s;
      item.column[s] = s < head.steps ? int(indices[b * nnzb + step / SLICES_K]) * SLICES_K +
                                            int(step % SLICES_K)
                                      : 0;
    }
  }
}
