// The pairs of blocks whose products add to each block of a product of two block-sparse matrices.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

// A stretch of the result: blocks first .. first + blocks - 1. Block g is the sum over its pairs
// (p, q), at pairs[2 * i] and pairs[2 * i + 1] for i = starts[g] - base .. starts[g + 1] - base -
// 1, of left block p times right block q.
struct PairsProblem {
  long long first, blocks, base;
  int bm, bk, bn;
};

// The rows of both patterns that a row of the result is made from, and how matrices are numbered.
struct ResultRows {
  long long rows, block_rows, inner;          // rows: of all matrices of the result
  long long left_nnzb, right_nnzb, out_nnzb;  // of a matrix
  long long first_row, base;                  // of a stretch, and its first pair
  int words;                                  // of shared memory
};

// A row of the result as the pairs of blocks that meet in it. of_left, of_right: from which matrix
// each one of the result is made; null where that is the one of the same number.
template <typename Index>
struct MeetingBlocks {
  long long begin, end;  // of the left row's blocks, of all matrices
  const Index *left, *right_indptr, *right;
  long long left_first, right_first;  // blocks of the matrices before

  __device__ __forceinline__ MeetingBlocks(const Index* left_indptr, const Index* left_indices,
                                           const Index* right_indptr, const Index* right_indices,
                                           const long long* of_left, const long long* of_right,
                                           const ResultRows& problem, long long row) {
    const long long matrix = row / problem.block_rows;
    const long long l = of_left ? of_left[matrix] : matrix;
    const long long r = of_right ? of_right[matrix] : matrix;
    left_first = l * problem.left_nnzb;
    right_first = r * problem.right_nnzb;
    const Index* indptr = left_indptr + l * (problem.block_rows + 1) + row % problem.block_rows;
    begin = indptr[0];
    end = indptr[1];
    left = left_indices + left_first;
    this->right_indptr = right_indptr + r * (problem.inner + 1);
    right = right_indices + right_first;
  }

  // Call visit(p, q, column, valid) for the pairs of left block p, 32 right blocks at a time: all
  // lanes of the warp do, some without a pair.
  template <typename Visit>
  __device__ __forceinline__ void with_left_block(long long p, Visit visit) const {
    const long long k = left[p], last = right_indptr[k + 1];
    for (long long q = right_indptr[k] + threadIdx.x % 32; q - threadIdx.x % 32 < last; q += 32) {
      const bool valid = q < last;
      visit(p, q, valid ? right[q] : Index(0), valid);
    }
  }

  // Call visit(column) for the pairs of the row, by all warps of the thread block.
  template <int WARP_COUNT, typename Visit>
  __device__ __forceinline__ void for_each_column(Visit visit) const {
    for (long long p = begin + threadIdx.x / 32; p < end; p += WARP_COUNT)
      with_left_block(p, [&](long long, long long, Index column, bool valid) {
        if (valid) visit((long long)column);
      });
  }
};

}  // namespace sparsegpu
