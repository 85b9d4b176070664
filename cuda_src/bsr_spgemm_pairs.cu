// For every block of a product of two block patterns, the pairs of blocks that it is the sum of
// (common/block_pairs.cuh), in the order of the left ones, and of the right ones where these
// repeat.
//
// -DFILL=0    counts[g] pairs are those of block g; several warps take a row
// -DFILL=1    the pairs of the rows from first_row on are written where `starts` says. A warp takes
//             a row, one left block after the other: so their order is always the same. counts[g],
//             zero before, says how many were written.
//
// -DINDEX of both patterns, -DOUT_INDEX of the result, -DPAIR of the pairs (s32, s64).
#include "common/block_pairs.cuh"

using namespace sparsegpu;

constexpr int WARPS = 4;
constexpr unsigned ALL = ~0u;

// Where a column is among the ascending ones begin .. end - 1, one of which it is.
__device__ __forceinline__ long long find(const OUT_INDEX* columns, long long begin, long long end,
                                          long long column) {
  while (end - begin > 1) {
    const long long middle = (begin + end) / 2;
    (columns[middle] <= column ? begin : end) = middle;
  }
  return begin;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    bsr_spgemm_pairs(PAIR* pairs, unsigned* counts, const long long* starts,
                     const OUT_INDEX* out_indptr, const OUT_INDEX* out_indices,
                     const INDEX* left_indptr, const INDEX* left_indices, const INDEX* right_indptr,
                     const INDEX* right_indices, const long long* of_left,
                     const long long* of_right, const __grid_constant__ ResultRows problem) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long step = FILL ? (long long)gridDim.x * WARPS : gridDim.x;
  for (long long x = FILL ? (long long)blockIdx.x * WARPS + warp : blockIdx.x; x < problem.rows;
       x += step) {
    const long long r = problem.first_row + x, matrix = r / problem.block_rows;
    const MeetingBlocks<INDEX> row(left_indptr, left_indices, right_indptr, right_indices, of_left,
                                   of_right, problem, r);
    const OUT_INDEX* ends = out_indptr + matrix * (problem.block_rows + 1) + r % problem.block_rows;
    const long long first = ends[0], last = ends[1], before = matrix * problem.out_nnzb;
    const OUT_INDEX* columns = out_indices + before;
    for (long long p = row.begin + (FILL ? 0 : warp); p < row.end; p += FILL ? 1 : WARPS) {
      row.with_left_block(p, [&](long long p, long long q, INDEX column, bool valid) {
        const long long g = valid ? before + find(columns, first, last, column) : -1 - lane;
        if constexpr (FILL) {
          const unsigned peers = __match_any_sync(ALL, g);  // of repeated right blocks
          const int earlier = __popc(peers & ((1u << lane) - 1));
          if (valid) {
            const long long place = starts[g] - problem.base + counts[g] + earlier;
            pairs[2 * place] = PAIR(row.left_first + p);
            pairs[2 * place + 1] = PAIR(row.right_first + q);
          }
          __syncwarp();
          if (valid && earlier == 0) counts[g] += __popc(peers);
          __syncwarp();
        } else if (valid) {
          atomicAdd(&counts[g], 1u);
        }
      });
    }
  }
}
