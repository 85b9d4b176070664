// Which block rows of a pattern store blocks, ascending and with most blocks first, and what else
// one reading of the pattern tells.
//
// A warp takes a row. -DRANKED=1: it compares the row's count of blocks with all the others, which
// for thousands of rows is quicker than a sort; of equal counts the lower row comes first.
//
// -DINDEX of the pattern (s32, s64), -DRANKED.
#include "common/warp_reduce.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;

// facts, zero before: rows with blocks, the last one's number + 1, most blocks of a row; how often
// a column is lower than the one before it in its row, and how often the same.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_filled_rows(long long* ascending, long long* most_first, unsigned long long* facts,
                    const INDEX* indptr, const INDEX* indices, long long rows) {
  const int lane = threadIdx.x % 32;
  unsigned long long filled = 0, end = 0, longest = 0, falls = 0, repeats = 0;
  for (long long i = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; i < rows;
       i += (long long)gridDim.x * (THREADS / 32)) {
    const long long first = indptr[i], last = indptr[i + 1], count = last - first;
    if (count == 0) continue;
    ++filled;
    end = i + 1;
    longest = max(longest, (unsigned long long)count);
    for (long long p = first + 1 + lane; p < last; p += 32) {
      falls += indices[p] < indices[p - 1];
      repeats += indices[p] == indices[p - 1];
    }
    if constexpr (RANKED) {
      int before = 0, rank = 0;
      for (long long j = lane; j < rows; j += 32) {
        const long long other = indptr[j + 1] - indptr[j];
        before += other > 0 && j < i;
        rank += other > count || (other == count && j < i);
      }
      before = warp_sum(before);
      rank = warp_sum(rank);
      if (lane == 0) {
        ascending[before] = i;
        most_first[rank] = i;
      }
    }
  }
  falls = warp_sum(falls);
  repeats = warp_sum(repeats);
  if (lane == 0 && filled) {
    atomicAdd(&facts[0], filled);
    atomicMax(&facts[1], end);
    atomicMax(&facts[2], longest);
    atomicAdd(&facts[3], falls);
    atomicAdd(&facts[4], repeats);
  }
}
