// For every block of a product of two block patterns, the pairs of blocks that it is the sum of
// (common/block_pairs.cuh), in the order of the left ones, and of the right ones where these
// repeat.
//
// -DFILL=0    starts[g] says where those of block g start, and starts of the number of blocks where
//             the last ones end. A thread block takes a row, which begins where pair_ends says.
//             facts[3], zero before, becomes the largest number of pairs of a block; counts are
//             zeros.
// -DFILL=1    the pairs of the rows from first_row on are written where `starts` says. A warp takes
//             a row, one left block after the other: so their order is always the same. counts[g],
//             zero before, says how many were written.
//
// -DINDEX of both patterns, -DOUT_INDEX of the result, -DPAIR of the pairs (s32, s64).
#include "common/block_pairs.cuh"
#include "common/last_at_most.cuh"
#include "common/warp_reduce.cuh"

using namespace sparsegpu;

constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr unsigned ALL = ~0u;

// Make sums of the counts of blocks first .. last - 1 of a row, by all of the thread block; `start`
// is the sum before them. The counts become zeros, `most` the largest of them.
__device__ __forceinline__ void starts_of_row(long long* starts, unsigned* counts, long long first,
                                              long long last, long long start,
                                              unsigned long long* most) {
  __shared__ unsigned of_warp[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned largest = 0;
  for (long long base = first; base < last; base += THREADS) {
    const long long g = base + threadIdx.x;
    const unsigned count = g < last ? counts[g] : 0;
    largest = max(largest, count);
    unsigned inclusive = count;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const unsigned lower = shuffle(inclusive, lane - step);
      if (lane >= step) inclusive += lower;
    }
    if (lane == 31) of_warp[warp] = inclusive;
    __syncthreads();
    long long before = start;
    for (int w = 0; w < WARPS; ++w) {
      if (w < warp) before += of_warp[w];
      start += of_warp[w];
    }
    if (g < last) {
      starts[g] = before + inclusive - count;
      counts[g] = 0;
    }
    __syncthreads();  // the sums of the warps are no longer read
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) largest = max(largest, shuffle_xor(largest, mask));
  if (lane == 0 && largest > 0) atomicMax(most, (unsigned long long)largest);
}

extern "C" __global__ void __launch_bounds__(THREADS, 8)
    bsr_spgemm_pairs(PAIR* pairs, unsigned* counts, long long* starts, const long long* pair_ends,
                     unsigned long long* facts, const OUT_INDEX* out_indptr,
                     const OUT_INDEX* out_indices, const INDEX* left_indptr,
                     const INDEX* left_indices, const INDEX* right_indptr,
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
    if constexpr (!FILL) {
      for (long long g = before + first + threadIdx.x; g < before + last; g += THREADS)
        counts[g] = 0;
      __syncthreads();
    }
    for (long long p = row.begin + (FILL ? 0 : warp); p < row.end; p += FILL ? 1 : WARPS) {
      row.with_left_block(p, [&](long long p, long long q, INDEX column, bool valid) {
        const long long g = valid ? before + last_at_most(columns, first, last, column) : -1 - lane;
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
    if constexpr (!FILL) {
      __syncthreads();
      starts_of_row(starts, counts, before + first, before + last, r == 0 ? 0 : pair_ends[r - 1],
                    &facts[3]);
      if (threadIdx.x == 0 && r == problem.rows - 1) starts[before + last] = pair_ends[r];
    }
  }
}
