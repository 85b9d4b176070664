// The block columns of a product of two block patterns, row by row (Gustavson's algorithm, with a
// thread block for each row), without a list of the pairs of blocks that meet.
//
// A row's columns are marked as bits of shared memory, so that counting the bits counts the columns
// and their order is the ascending one. Columns that are too far apart for one stretch of bits are
// put into a hash table and ranked, where they are few; else the row is read again for every
// stretch.
//
// -DFILL=0    counts[row] columns are found, pairs[row] pairs of blocks
// -DFILL=1    the columns are written, and out_indptr; block_ends are the sums of counts
//
// -DINDEX of both patterns, -DOUT_INDEX of the result (s32, s64).
#include "common/block_pairs.cuh"
#include "common/ceil_div.cuh"
#include "common/warp_reduce.cuh"

using namespace sparsegpu;

constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr int HASHED = 512, SLOT_BITS = 10, SLOTS = 1 << SLOT_BITS;  // pairs of a hashed row
constexpr unsigned EMPTY = ~0u;

typedef MeetingBlocks<INDEX> Row;

struct Span {
  long long pairs, low, high;  // of the columns; low > high where there are none
};

__device__ __forceinline__ Span span_of(const Row& row) {
  __shared__ Span of_warp[WARPS];
  Span mine = {0, 0x7fffffffffffffffLL, -1};
  row.for_each_column<WARPS>([&](long long column) {
    ++mine.pairs;
    mine.low = min(mine.low, column);
    mine.high = max(mine.high, column);
  });
  mine.pairs = warp_sum(mine.pairs);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    mine.low = min(mine.low, shuffle_xor(mine.low, mask));
    mine.high = max(mine.high, shuffle_xor(mine.high, mask));
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  Span all = of_warp[0];
  for (int w = 1; w < WARPS; ++w) {
    all.pairs += of_warp[w].pairs;
    all.low = min(all.low, of_warp[w].low);
    all.high = max(all.high, of_warp[w].high);
  }
  return all;
}

// The columns first .. first + 32 * words - 1 of the row: how many there are. FILL: written to
// `to`.
__device__ __forceinline__ long long marked(const Row& row, unsigned* bits, int words,
                                            long long first, OUT_INDEX* to) {
  __shared__ int of_warp[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int w = threadIdx.x; w < words; w += THREADS) bits[w] = 0;
  __syncthreads();
  row.for_each_column<WARPS>([&](long long column) {
    const long long bit = column - first;
    if (bit >= 0 && bit < 32LL * words) atomicOr(&bits[bit / 32], 1u << bit % 32);
  });
  __syncthreads();
  const int share = ceil_div(words, THREADS) * 32;
  const int begin = min(words, warp * share), end = min(words, begin + share);
  int mine = 0;
  for (int w = begin + lane; w < end; w += 32) mine += __popc(bits[w]);
  mine = warp_sum(mine);
  if (lane == 0) of_warp[warp] = mine;
  __syncthreads();
  int before = 0, all = 0;
  for (int w = 0; w < WARPS; ++w) {
    if (w < warp) before += of_warp[w];
    all += of_warp[w];
  }
  if constexpr (FILL) {
    for (int w = begin; w < end; w += 32) {
      unsigned word = w + lane < end ? bits[w + lane] : 0;
      int inclusive = __popc(word);
      const int here = inclusive;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int lower = shuffle(inclusive, lane - step);
        if (lane >= step) inclusive += lower;
      }
      OUT_INDEX* place = to + before + inclusive - here;
      for (; word != 0; word &= word - 1)
        *place++ = OUT_INDEX(first + 32LL * (w + lane) + __ffs(word) - 1);
      before += shuffle(inclusive, 31);
    }
  }
  __syncthreads();  // the bits are no longer read
  return all;
}

// The same for all columns of a row of at most HASHED pairs, by a table of their distances to
// `low`.
__device__ __forceinline__ long long hashed(const Row& row, unsigned* table, long long low,
                                            OUT_INDEX* to) {
  __shared__ unsigned listed;
  unsigned* list = table + SLOTS;
  for (int s = threadIdx.x; s < SLOTS; s += THREADS) table[s] = EMPTY;
  if (threadIdx.x == 0) listed = 0;
  __syncthreads();
  row.for_each_column<WARPS>([&](long long column) {
    const unsigned key = unsigned(column - low);
    for (unsigned slot = key * 2654435769u >> (32 - SLOT_BITS);; slot = (slot + 1) % SLOTS) {
      const unsigned there = atomicCAS(&table[slot], EMPTY, key);
      if (there == EMPTY) list[atomicAdd(&listed, 1u)] = key;
      if (there == EMPTY || there == key) break;
    }
  });
  __syncthreads();
  const unsigned found = listed;
  if constexpr (FILL) {
    for (unsigned i = threadIdx.x; i < found; i += THREADS) {
      const unsigned key = list[i];
      unsigned rank = 0;
      for (unsigned j = 0; j < found; ++j) rank += list[j] < key;
      to[rank] = OUT_INDEX(low + key);
    }
  }
  __syncthreads();  // the table is no longer read
  return found;
}

extern "C" __global__ void __launch_bounds__(THREADS, 8)
    bsr_spgemm_rows(long long* counts, long long* pairs, OUT_INDEX* out_indices,
                    OUT_INDEX* out_indptr, const long long* block_ends, const INDEX* left_indptr,
                    const INDEX* left_indices, const INDEX* right_indptr,
                    const INDEX* right_indices, const long long* of_left, const long long* of_right,
                    const __grid_constant__ ResultRows problem) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  unsigned* words = reinterpret_cast<unsigned*>(dynamic);
  for (long long r = blockIdx.x; r < problem.rows; r += gridDim.x) {
    const Row row(left_indptr, left_indices, right_indptr, right_indices, of_left, of_right,
                  problem, r);
    const Span span = span_of(row);
    const long long width = 32LL * problem.words, extent = span.high - span.low + 1;
    OUT_INDEX* to = nullptr;
    if constexpr (FILL) {
      const long long matrix = r / problem.block_rows, row_of_matrix = r % problem.block_rows;
      to = out_indices + (r == 0 ? 0 : block_ends[r - 1]);
      if (threadIdx.x == 0) {
        OUT_INDEX* indptr = out_indptr + matrix * (problem.block_rows + 1);
        if (row_of_matrix == 0) indptr[0] = 0;
        indptr[row_of_matrix + 1] = OUT_INDEX(block_ends[r] - matrix * problem.out_nnzb);
      }
    }
    long long found = 0;
    if (extent > width && span.pairs <= HASHED && extent < EMPTY) {
      found = hashed(row, words, span.low, to);
    } else {
      for (long long first = span.low; first <= span.high; first += width) {
        const long long left = (span.high - first) / 32 + 1;
        found += marked(row, words, int(min(left, (long long)problem.words)), first, to + found);
      }
    }
    if constexpr (!FILL) {
      if (threadIdx.x == 0) {
        counts[r] = found;
        pairs[r] = span.pairs;
      }
    }
    __syncthreads();  // the span is no longer read
  }
}
