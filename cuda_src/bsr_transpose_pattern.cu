// The transpose of a block pattern: for each block column the block rows that have it, ascending,
// and where their blocks are stored; duplicates keep their order.
//
// A thread block takes a stripe of columns and reads the matrix's columns twice. Each of its warps
// has a run of positions: it counts how many lie in each column of the stripe, and how many before
// the stripe. Prefix sums over the warps are where each warp's blocks go, and every warp writes
// them there in order: deterministic, whatever the order of the atomics.
//
// -DINDEX: of the pattern (s32, s64).
#include "common/ceil_div.cuh"
#include "common/last_at_most.cuh"
#include "common/warp_reduce.cuh"

using namespace sparsegpu;

constexpr int STRIPE = 32;  // columns, one a lane
constexpr int WARPS = 32;
constexpr int AT_ONCE = 4;  // loads in flight a lane
constexpr int NEAR = 3;     // rows that are tried before a binary search
constexpr unsigned ALL = 0xffffffffu;

// The row of position p, `row` or a later one: mostly that or the next.
__device__ __forceinline__ long long row_of(const INDEX* indptr, long long row, long long rows,
                                            long long p) {
  for (int i = 0; i < NEAR; ++i, ++row) {
    if (indptr[row + 1] > p) return row;
  }
  return last_at_most(indptr, row, rows, p);
}

// Calls visit(position, column) for a run, 32 neighbours at a time in their order; the column is -1
// behind the end.
template <typename Visit>
__device__ __forceinline__ void for_each_position(const INDEX* indices, long long begin,
                                                  long long end, Visit visit) {
  for (long long p0 = begin + threadIdx.x % 32; p0 - threadIdx.x % 32 < end; p0 += 32 * AT_ONCE) {
    INDEX column[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k)
      column[k] = p0 + 32 * k < end ? indices[p0 + 32 * k] : INDEX(-1);
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) visit(p0 + 32 * k, column[k]);
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    bsr_transpose_pattern(INDEX* out_indptr, INDEX* out_indices, long long* out_from,
                          const INDEX* indptr, const INDEX* indices, long long stripes,
                          long long rows, long long columns, long long nnzb) {
  __shared__ int counts[WARPS][STRIPE];  // of a warp's run; then their exclusive prefix sums
  __shared__ long long before[WARPS];    // the stripe, of a warp's run
  __shared__ long long starts[STRIPE];   // of the columns
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long b = blockIdx.x / stripes, c0 = blockIdx.x % stripes * STRIPE;
  const long long run = ceil_div(nnzb, 32 * WARPS) * 32;
  const long long begin = min(warp * run, nnzb), end = min(begin + run, nnzb);
  indptr += b * (rows + 1);
  indices += b * nnzb;

  counts[warp][lane] = 0;
  __syncwarp();
  long long lower = 0;
  for_each_position(indices, begin, end, [&](long long, INDEX column) {
    lower += column >= 0 && column < c0;
    if (column >= c0 && column < c0 + STRIPE) atomicAdd(&counts[warp][int(column - c0)], 1);
  });
  lower = warp_sum(lower);
  if (lane == 0) before[warp] = lower;
  __syncthreads();
  if (warp == 0) {
    long long start = 0, total = 0;
    for (int w = 0; w < WARPS; ++w) {
      start += before[w];
      const int count = counts[w][lane];
      counts[w][lane] = int(total);
      total += count;
    }
    for (int l = 0; l < 31; ++l) {
      const long long of_lane = __shfl_sync(ALL, total, l);
      if (l < lane) start += of_lane;
    }
    starts[lane] = start;
    if (c0 + lane < columns) out_indptr[b * (columns + 1) + c0 + lane] = INDEX(start);
    if (c0 + lane == columns - 1) out_indptr[b * (columns + 1) + columns] = INDEX(nnzb);
  }
  __syncthreads();
  long long row = 0;  // of the last block that this lane placed
  for_each_position(indices, begin, end, [&](long long p, INDEX column) {
    const bool inside = column >= c0 && column < c0 + STRIPE;
    if (!__any_sync(ALL, inside)) return;
    const int j = inside ? int(column - c0) : ~lane;  // a unique key: match_any finds no peer
    const unsigned peers = __match_any_sync(ALL, j);
    const int earlier = __popc(peers & ((1u << lane) - 1));
    if (inside) {
      const long long place = b * nnzb + starts[j] + counts[warp][j] + earlier;
      row = row_of(indptr, row, rows, p);
      out_indices[place] = INDEX(row);
      out_from[place] = b * nnzb + p;
    }
    __syncwarp();
    if (inside && earlier == 0) counts[warp][j] += __popc(peers);
    __syncwarp();
  });
}
