// The columns of the largest numbers of every row, ascending. Ties keep the lower column; NaN goes
// last.
//
// A thread block takes a row. It finds the smallest number that is kept by its digits of eight
// bits, from the highest on: a histogram of the numbers that begin with the digits found so far
// tells the next one. Then every warp writes what it keeps of a stretch of columns.
//
// -DT of the numbers (f16, bf16, f32, f64, s64), -DINDEX of the columns (s32, s64).
#include "common/ceil_div.cuh"
#include "common/order_key.cuh"
#include "common/warp_reduce.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int DIGIT = 8, DIGITS = 1 << DIGIT, OF_LANE = DIGITS / 32;
static_assert(THREADS == DIGITS, "a thread clears its digit");

typedef decltype(order_key(T())) Key;

// What of a row is kept: the numbers above `found`, in the bits of `mask`, and the first `ties` of
// those that equal it.
struct Threshold {
  Key found, mask;
  unsigned ties;
};

__device__ __forceinline__ Threshold threshold_of(const T* scores, long long columns,
                                                  long long count) {
  __shared__ unsigned histogram[DIGITS], digit, left, alike;
  const int lane = threadIdx.x % 32;
  Threshold at = {0, 0, unsigned(count)};
  for (int shift = 8 * sizeof(Key) - DIGIT; shift >= 0; shift -= DIGIT) {
    histogram[threadIdx.x] = 0;
    __syncthreads();
    for (long long j = threadIdx.x; j < columns; j += THREADS) {
      const Key key = order_key(scores[j]);
      if ((key & at.mask) == at.found) atomicAdd(&histogram[key >> shift & (DIGITS - 1)], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 32) {  // the highest digits are the first lane's
      const int highest = DIGITS - 1 - lane * OF_LANE;
      unsigned mine = 0;
#pragma unroll
      for (int d = 0; d < OF_LANE; ++d) mine += histogram[highest - d];
      unsigned inclusive = mine;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const unsigned lower = shuffle(inclusive, lane - step);
        if (lane >= step) inclusive += lower;
      }
      unsigned before = inclusive - mine;
      if (before < at.ties && at.ties <= inclusive) {
        int d = highest;
        for (; before + histogram[d] < at.ties; --d) before += histogram[d];
        digit = d;
        left = at.ties - before;
        alike = histogram[d];
      }
    }
    __syncthreads();
    at.found |= Key(digit) << shift;
    at.mask |= Key(DIGITS - 1) << shift;
    at.ties = left;
    if (left == alike) break;  // all that begin so are kept
  }
  return at;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    top_k(INDEX* chosen, const T* scores, long long rows, long long columns, long long count) {
  __shared__ unsigned above_of_warp[WARPS], equal_of_warp[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long share = ceil_div(columns, THREADS) * 32;  // of a warp
  const long long begin = min(columns, warp * share), end = min(columns, begin + share);
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* of_row = scores + row * columns;
    const Threshold at = threshold_of(of_row, columns, count);
    unsigned above = 0, equal = 0;
    for (long long j = begin + lane; j < end; j += 32) {
      const Key key = order_key(of_row[j]) & at.mask;
      above += key > at.found;
      equal += key == at.found;
    }
    above = warp_sum(above);
    equal = warp_sum(equal);
    if (lane == 0) {
      above_of_warp[warp] = above;
      equal_of_warp[warp] = equal;
    }
    __syncthreads();
    above = equal = 0;
    for (int w = 0; w < warp; ++w) {
      above += above_of_warp[w];
      equal += equal_of_warp[w];
    }
    const unsigned lower_lanes = (1u << lane) - 1;
    for (long long first = begin; first < end; first += 32) {
      const long long j = first + lane;
      const Key key = j < end ? order_key(of_row[j]) & at.mask : 0;
      const unsigned bigger = __ballot_sync(~0u, j < end && key > at.found);
      const unsigned alike = __ballot_sync(~0u, j < end && key == at.found);
      const unsigned place = above + __popc(bigger & lower_lanes);
      const unsigned tie = equal + __popc(alike & lower_lanes);
      if (bigger >> lane & 1 || (alike >> lane & 1 && tie < at.ties))
        chosen[row * count + place + min(tie, at.ties)] = INDEX(j);
      above += __popc(bigger);
      equal += __popc(alike);
    }
    __syncthreads();  // the counts of the warps are no longer read
  }
}
