// The index lists of scatter_mm for a pattern (ops/scatter_indices.py), in one launch.
//
// A thread makes an entry: of the list of products, whose place tells its row (by a binary search
// of indptr), its column split and its block; or of the list of tiles.
//
// -DINDEX of the pattern (s32, s64), -DFORMAT=pairs|strided|compressed (common/pair_sum.cuh).
#include "common/pair_sum.cuh"
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;
constexpr ListFormat LIST_FORMAT = ListFormat::FORMAT;

struct ListProblem {
  long long block_rows, nnzb, filled;  // filled: rows with blocks
  long long batches, inner, n;         // inner: others of a matrix, K / Ks
  int ms, ks, ns, split;
};

// The row that block p belongs to.
__device__ __forceinline__ long long row_of(const INDEX* indptr, long long rows, long long p) {
  long long low = 0, high = rows;
  while (high - low > 1) {
    const long long middle = (low + high) / 2;
    (indptr[middle] <= p ? low : high) = middle;
  }
  return low;
}

// rows: those with blocks, in the order of their tiles. filled: how many, where the host has not
// read it yet. pairs: p_offsets is pq, row by row.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    scatter_indices(long long* starts, long long* r_offsets, long long* p_offsets,
                    long long* q_offsets, const long long* rows, const long long* filled,
                    const INDEX* indptr, const INDEX* indices,
                    const __grid_constant__ ListProblem problem) {
  const long long split = problem.split, entries = problem.nnzb * split;
  const long long tiles = (filled ? *filled : problem.filled) * split;
  const long long begin = (long long)blockIdx.x * THREADS + threadIdx.x;
  const long long step = (long long)gridDim.x * THREADS;

  for (long long x = begin; x < entries; x += step) {
    const long long row = row_of(indptr, problem.block_rows, x / split);
    const long long first = indptr[row], count = indptr[row + 1] - first;
    const long long within = x - first * split, s = within / count, p = first + within % count;
    const long long column = indices[p];
    if constexpr (LIST_FORMAT == ListFormat::pairs) {
      for (long long b = 0; b < problem.batches; ++b) {
        p_offsets[2 * (b * entries + x)] = p;
        p_offsets[2 * (b * entries + x) + 1] = (b * problem.inner + column) * split + s;
      }
    } else {
      if constexpr (LIST_FORMAT == ListFormat::strided) p_offsets[x] = p;
      q_offsets[x] = column * problem.ks * problem.n + s * problem.ns;
    }
  }

  for (long long x = begin; x < tiles; x += step) {
    const long long row = rows[x / split], s = x % split;
    if constexpr (LIST_FORMAT != ListFormat::pairs)
      r_offsets[x] = row * problem.ms * problem.n + s * problem.ns;
    if constexpr (LIST_FORMAT != ListFormat::compressed) {
      const long long first = indptr[row], count = indptr[row + 1] - first;
      for (long long b = 0; b < problem.batches; ++b)
        starts[b * tiles + x] = b * entries + first * split + s * count;
    }
  }
  if constexpr (LIST_FORMAT == ListFormat::compressed) {
    for (long long x = begin; x <= problem.block_rows; x += step) starts[x] = indptr[x];
  } else if (begin == 0) {
    starts[problem.batches * tiles] = problem.batches * entries;
  }
}
