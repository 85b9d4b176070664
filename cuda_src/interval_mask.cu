// A mask in which every query attends to one interval of keys: the pattern, kinds and bits of a
// BlockMask (sparsegpu/engines/_intervals.py says what the interval of a query is).
//
// The host has found, for each block row, where its blocks begin among all blocks and its partial
// ones among all partial ones, its first block column, and the interval of its full ones. A thread
// block writes a row: the columns and kinds of its blocks, and the bits of the partial ones, a word
// a thread.
//
// -DINDEX of the pattern (s32, s64).
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256, WORD = 32;
constexpr unsigned char FULL = 1, PARTIAL = 2;

struct IntervalProblem {
  long long rows, keys;  // rows: block rows
  long long lower, upper, prefix, documents;
  int bm, bk, words;  // words of a row of a block
};

struct Interval {
  long long start, stop;
};

// The keys that a query attends to. ends: where the documents end.
__device__ __forceinline__ Interval interval_of(long long query, const long long* ends,
                                                const IntervalProblem& problem) {
  long long start = query - problem.lower, stop = query + problem.upper + 1;
  if (problem.documents > 0) {
    long long low = 0, high = problem.documents;  // the first one that ends behind the query
    while (low < high) {
      const long long middle = (low + high) / 2;
      if (ends[middle] <= query) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low > 0) start = max(start, ends[low - 1]);
    stop = min(stop, ends[low]);
  }
  return {max(start, 0LL), min(max(stop, problem.prefix), problem.keys)};
}

// The bits of a word below that of `key`, which is counted from the word's first key and may lie
// outside of it.
__device__ __forceinline__ unsigned bits_below(long long key) {
  return key <= 0 ? 0u : key >= WORD ? ~0u : (1u << key) - 1;
}

// tables: of each block row, in turn, and one beyond: the number of its first block, of its first
// partial block; its first column, that of its first full block, and the one behind its last full
// block. Behind them the ends of documents.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    interval_mask(INDEX* indptr, INDEX* indices, unsigned char* kind, unsigned* bits,
                  const long long* tables, const __grid_constant__ IntervalProblem problem) {
  const long long step = problem.rows + 1;
  for (long long row = blockIdx.x; row <= problem.rows; row += gridDim.x) {
    const long long* table = tables + row;
    const long long begin = table[0];
    if (threadIdx.x == 0) indptr[row] = INDEX(begin);
    if (row == problem.rows) break;
    const long long first = table[2 * step], full = table[3 * step], full_end = table[4 * step];
    for (long long p = begin + threadIdx.x; p < table[1]; p += THREADS) {
      const long long column = first + p - begin;
      indices[p] = INDEX(column);
      kind[p] = column >= full && column < full_end ? FULL : PARTIAL;
    }
    const long long partial = table[step], partial_end = table[step + 1];
    const unsigned words = problem.words, of_block = problem.bm * words;
    for (long long block = partial; block < partial_end; ++block) {
      const long long before = first + block - partial;  // without the full blocks
      const long long column = before < full ? before : full_end + before - full;
      const long long left = column * problem.bk, right = left + problem.bk;
      for (unsigned x = threadIdx.x; x < of_block; x += THREADS) {
        const long long query = row * problem.bm + x / words, from = left + x % words * WORD;
        const Interval keys = interval_of(query, tables + 5 * step, problem);
        bits[block * of_block + x] =
            bits_below(min(keys.stop, right) - from) & ~bits_below(keys.start - from);
      }
    }
  }
}
