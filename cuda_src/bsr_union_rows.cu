// The union of two block patterns with ascending columns and without repeated ones, row by row: a
// warp takes a row of each and finds the place of every block by a binary search in the other row.
//
// -DFILL=0: counts[row] blocks of the union, common[row] that both patterns store.
// -DFILL=1: the block columns and row starts of the union, and which block of the left and of the
// right pattern each block is (of all matrices; -1: none). block_ends are the sums of counts.
//
// -DINDEX of both patterns, -DOUT_INDEX of the union, -DNUMBER of blocks (s32, s64).
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int WARPS = 4, THREADS = 32 * WARPS;

struct UnionRows {
  long long rows, block_rows;                 // of all matrices, of one
  long long left_nnzb, right_nnzb, out_nnzb;  // of a matrix
};

// The blocks of a row of one pattern.
struct Row {
  long long first;  // of all matrices
  const INDEX* columns;
  long long count;

  __device__ __forceinline__ Row(const INDEX* indptr, const INDEX* indices, long long nnzb,
                                 const UnionRows& problem, long long row) {
    const long long matrix = row / problem.block_rows;
    indptr += row + matrix;  // of block_rows + 1 starts a matrix
    first = matrix * nnzb + indptr[0];
    columns = indices + first;
    count = (long long)indptr[1] - indptr[0];
  }

  // How many columns are below this one.
  __device__ __forceinline__ long long below(INDEX column) const {
    long long low = 0, high = count;
    while (low < high) {
      const long long middle = (low + high) / 2;
      if (columns[middle] < column)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

// Call use(i, at, column, both) for the blocks of a row: number i, column, place in the union after
// those blocks that come first, and where the other row has it, too, its number there, else -1.
// Returns how many it has. All lanes of the warp come here.
template <typename Use>
__device__ __forceinline__ long long meet(const Row& row, const Row& other, Use use) {
  const int lane = threadIdx.x % 32;
  long long common = 0;
  for (long long base = 0; base < row.count; base += 32) {
    const long long i = base + lane;
    INDEX column = 0;
    long long below = 0;
    bool both = false;
    if (i < row.count) {
      column = row.columns[i];
      below = other.below(column);
      both = below < other.count && other.columns[below] == column;
    }
    const unsigned lanes = __ballot_sync(~0u, both);
    const long long before = common + __popc(lanes & ((1u << lane) - 1));
    if (i < row.count) use(i, i + below - before, column, both ? below : -1ll);
    common += __popc(lanes);
  }
  return common;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_union_rows(long long* counts, long long* common, OUT_INDEX* indices, OUT_INDEX* indptr,
                   const long long* block_ends, NUMBER* of_left, NUMBER* of_right,
                   const INDEX* left_indptr, const INDEX* left_indices, const INDEX* right_indptr,
                   const INDEX* right_indices, const __grid_constant__ UnionRows problem) {
  const int lane = threadIdx.x % 32;
  long long r = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
  for (; r < problem.rows; r += (long long)gridDim.x * WARPS) {
    const Row left(left_indptr, left_indices, problem.left_nnzb, problem, r);
    const Row right(right_indptr, right_indices, problem.right_nnzb, problem, r);
    if constexpr (!FILL) {
      const long long both = meet(left, right, [](long long, long long, INDEX, long long) {});
      if (lane == 0) {
        counts[r] = left.count + right.count - both;
        common[r] = both;
      }
    } else {
      const long long start = r == 0 ? 0 : block_ends[r - 1];
      meet(left, right, [&](long long i, long long at, INDEX column, long long number) {
        indices[start + at] = OUT_INDEX(column);
        of_left[start + at] = NUMBER(left.first + i);
        of_right[start + at] = number < 0 ? NUMBER(-1) : NUMBER(right.first + number);
      });
      meet(right, left, [&](long long i, long long at, INDEX column, long long number) {
        if (number >= 0) return;
        indices[start + at] = OUT_INDEX(column);
        of_left[start + at] = NUMBER(-1);
        of_right[start + at] = NUMBER(right.first + i);
      });
      if (lane == 0) {
        const long long matrix = r / problem.block_rows;
        const long long before = matrix * problem.out_nnzb;
        if (r == matrix * problem.block_rows) indptr[r + matrix] = 0;
        indptr[r + matrix + 1] = OUT_INDEX(block_ends[r] - before);
      }
    }
  }
}
