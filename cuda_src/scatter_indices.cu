// The index lists of scatter_mm for a pattern (ops/scatter_indices.py) and what else one reading of
// the pattern tells, in one launch.
//
// A warp takes a block row and makes its tiles. A thread takes a column split and a block, finds
// the block's row (by a binary search of indptr) and makes an entry of the list of products.
//
// -DINDEX of the pattern (s32, s64), -DFORMAT=pairs|strided|compressed (common/pair_sum.cuh).
#include "common/column_order.cuh"
#include "common/last_at_most.cuh"
#include "common/pair_sum.cuh"
#include "common/warp_reduce.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;
constexpr ListFormat LIST_FORMAT = ListFormat::FORMAT;

struct ListProblem {
  long long block_rows, nnzb, listed;  // listed: rows in `rows`
  long long batches, inner, n;         // inner: others of a matrix, K / Ks
  int ms, ks, ns, split;
};

// rows: those with blocks, in the order of their tiles, and longest_row, the most blocks of one.
// Both null: a warp compares its row with all the others, which for thousands of rows is quicker
// than a sort.
// facts, of the host and zero before: rows with blocks, the last one's number + 1, most blocks of a
// row; what common/column_order.cuh says. Null: not wanted.
// pairs: p_offsets is pq, row by row.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    scatter_indices(long long* starts, long long* r_offsets, long long* p_offsets,
                    long long* q_offsets, long long* facts, const long long* rows,
                    const INDEX* longest_row, const INDEX* indptr, const INDEX* indices,
                    const __grid_constant__ ListProblem problem) {
  const long long split = problem.split, entries = problem.nnzb * split;
  const long long begin = (long long)blockIdx.x * THREADS + threadIdx.x;
  const long long step = (long long)gridDim.x * THREADS;

  const int lane = threadIdx.x % 32;
  const long long candidates = rows ? problem.listed : problem.block_rows;
  ColumnOrder order;
  for (long long i = begin / 32; i < candidates; i += step / 32) {
    const long long row = rows ? rows[i] : i;
    const long long first = indptr[row], last = indptr[row + 1], count = last - first;
    if (count == 0) continue;
    long long rank = i, filled = problem.listed, longest = 0;
    if (!rows) {
      int before = 0, others = 0;
      for (long long j = lane; j < candidates; j += 32) {
        const long long other = indptr[j + 1] - indptr[j];
        others += other > 0;
        longest = max(longest, other);
        if constexpr (LIST_FORMAT == ListFormat::compressed) {  // most blocks first
          before += other > count || (other == count && j < row);
        } else {
          before += other > 0 && j < row;
        }
      }
      rank = warp_sum(before);
      filled = warp_sum(others);
    }
    const long long tiles = filled * split;
    for (long long s = lane; s < split; s += 32) {
      const long long tile = rank * split + s;
      if constexpr (LIST_FORMAT != ListFormat::pairs)
        r_offsets[tile] = row * problem.ms * problem.n + s * problem.ns;
      if constexpr (LIST_FORMAT != ListFormat::compressed) {
        for (long long b = 0; b < problem.batches; ++b)
          starts[b * tiles + tile] = b * entries + first * split + s * count;
      }
    }
    if (LIST_FORMAT != ListFormat::compressed && rank == filled - 1 && lane == 0)
      starts[problem.batches * tiles] = problem.batches * entries;
    if (!facts) continue;
    if (last == problem.nnzb) {  // of the rows with blocks, the last
      longest = rows ? *longest_row : warp_max(longest);
      if (lane == 0) {
        facts[0] = filled;
        facts[1] = row + 1;
        facts[2] = longest;
      }
    }
    order.look(indices, first, last, lane);
  }
  order.tell(facts + 3, lane);

  for (long long x = begin; x < entries; x += step) {
    const long long s = x / problem.nnzb, p = x - s * problem.nnzb, column = indices[p];
    const long long row = last_at_most(indptr, 0LL, problem.block_rows, p);
    const long long first = indptr[row], count = indptr[row + 1] - first;
    const long long entry = first * split + s * count + (p - first);
    if constexpr (LIST_FORMAT == ListFormat::pairs) {
      for (long long b = 0; b < problem.batches; ++b) {
        p_offsets[2 * (b * entries + entry)] = p;
        p_offsets[2 * (b * entries + entry) + 1] = (b * problem.inner + column) * split + s;
      }
    } else {
      if constexpr (LIST_FORMAT == ListFormat::strided) p_offsets[entry] = p;
      q_offsets[entry] = column * problem.ks * problem.n + s * problem.ns;
    }
  }
  if constexpr (LIST_FORMAT == ListFormat::compressed) {
    for (long long x = begin; x <= problem.block_rows; x += step) starts[x] = indptr[x];
  }
}
