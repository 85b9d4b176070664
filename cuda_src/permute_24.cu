// What exchanging columns between two stripes would gain (a stripe: GROUP columns that form the
// groups of the format): for each pair, the best way to divide their columns into two, and its
// gain.
//
//   GROUP   4 (two stay; 35 ways) or 2 (one stays; 3 ways)
//
// A warp takes a pair and its lanes the rows. `keys` is (columns, rows), integers, so that the
// sums are exact in any order. Sum and maximum of each two columns are computed once: the two
// largest of four values are one of each of two pairs, or both of one pair.
//
// A way is the set of positions that form the first stripe, as bits: position 0 is one of them, and
// ways are in the order of the number that the bits make, so that way 0 changes nothing.

#include "common/warp_reduce.cuh"

using namespace sparsegpu;

constexpr int kThreads = 128;
constexpr int kColumns = 2 * GROUP;
constexpr int kSets = 1 << kColumns;

constexpr int count_bits(int set) {
  int count = 0;
  for (; set; set &= set - 1) ++count;
  return count;
}

constexpr bool is_way(int set) {
  return set & 1 && count_bits(set) == GROUP;
}

constexpr int ways_below(int set) {
  int count = 0;
  for (int s = 0; s < set; ++s) count += is_way(s);
  return count;
}

constexpr int kWays = ways_below(kSets);

// The position of the n-th element of a set.
constexpr int element(int set, int n) {
  int position = 0;
  for (;; ++position) {
    if (set >> position & 1 && n-- == 0) return position;
  }
}

// Of one row: each two columns' sum and maximum, a < b.
struct Pairs {
  int sum[kColumns][kColumns], most[kColumns][kColumns];
};

template <int SET>
__device__ __forceinline__ int kept_of(const Pairs& pairs) {
  constexpr int a = element(SET, 0), b = element(SET, 1);
#if GROUP == 4
  constexpr int c = element(SET, 2), d = element(SET, 3);
  return max(pairs.most[a][b] + pairs.most[c][d], max(pairs.sum[a][b], pairs.sum[c][d]));
#else
  return pairs.most[a][b];
#endif
}

template <int SET>
__device__ __forceinline__ void add_ways(long long (&total)[kWays], const Pairs& pairs) {
  if constexpr (SET < kSets) {
    if constexpr (is_way(SET))
      total[ways_below(SET)] += kept_of<SET>(pairs) + kept_of<kSets - 1 - SET>(pairs);
    add_ways<SET + 2>(total, pairs);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    permute_24(long long* gains, long long* ways, const int* keys, const long long* stripes,
               const long long* left, const long long* right, long long count, long long rows) {
  const int lane = threadIdx.x % 32;
  const long long pair = blockIdx.x * (long long)(kThreads / 32) + threadIdx.x / 32;
  if (pair >= count) return;

  const int* column[kColumns];
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const long long stripe = i < GROUP ? left[pair] : right[pair];
    column[i] = keys + stripes[stripe * GROUP + i % GROUP] * rows;
  }

  long long total[kWays] = {};
  for (long long r = lane; r < rows; r += 32) {
    int x[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) x[i] = column[i][r];
    Pairs pairs;
#pragma unroll
    for (int a = 0; a < kColumns; ++a) {
#pragma unroll
      for (int b = a + 1; b < kColumns; ++b) {
        pairs.sum[a][b] = x[a] + x[b];
        pairs.most[a][b] = max(x[a], x[b]);
      }
    }
    add_ways<1>(total, pairs);
  }

  int best = 0;
  long long most = 0, as_it_is = 0;
#pragma unroll
  for (int w = 0; w < kWays; ++w) {
    total[w] = warp_sum(total[w]);
    if (w == 0) as_it_is = most = total[0];
    if (total[w] > most) {
      most = total[w];
      best = w;
    }
  }
  if (lane == 0) {
    gains[pair] = most - as_it_is;
    ways[pair] = best;
  }
}
