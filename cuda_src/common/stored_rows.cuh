// Element rows of a BSR matrix, shared out to threads in vectors of neighbouring elements.
//
// An element row of a block row is a segment of bk elements in each of its blocks, bm * bk elements
// apart. A team of threads takes `rows` element rows of one block row at a time (a power of two, at
// most 32). Within a warp 32 / rows lanes go along each row, from vector to vector and from block
// to block. With rows = 4 and vectors of eight, a warp reads four times 128 consecutive bytes of
// 16x16 blocks in bfloat16; of 64x64 blocks, with rows = 1, four segments of 128 bytes.
#pragma once

#include "common/pack.cuh"
#include "common/view.cuh"
#include "common/warp_reduce.cuh"

namespace sparsegpu {

// What is shared out: items are the groups of `rows` element rows in all block rows and matrices.
// Division is slow, so the host says how far a team's next item is from its last one, and how far a
// lane's next vector: no loop divides.
struct RowsProblem {
  long long matrices, block_rows;
  long long step_matrices, step_block_rows;
  int step_groups, groups;      // groups: of one block row
  int bm, rows, lanes;          // lanes of a warp along each of the rows: 32 / rows
  int block_step, vector_step;  // of a lane
  int vectors;                  // of a segment
};

// A team's item: the matrix, its block row, and the group of element rows.
struct RowGroup {
  long long matrix, block_row;
  int group;

  // The grid is so small that the number of the first item has 32 bits.
  __device__ __forceinline__ RowGroup(const RowsProblem& problem, unsigned first)
      : matrix(0), block_row(first / unsigned(problem.groups)) {
    group = int(first - unsigned(block_row) * unsigned(problem.groups));
    if (block_row >= problem.block_rows) {
      matrix = unsigned(block_row) / unsigned(problem.block_rows);
      block_row -= matrix * problem.block_rows;
    }
  }
  __device__ __forceinline__ void advance(const RowsProblem& problem) {
    matrix += problem.step_matrices;
    block_row += problem.step_block_rows;
    group += problem.step_groups;
    if (group >= problem.groups) {
      group -= problem.groups;
      ++block_row;
    }
    if (block_row >= problem.block_rows) {
      block_row -= problem.block_rows;
      ++matrix;
    }
  }
};

// A lane's place in its row: vector v of the segment in the row's block p. Past the end, p is the
// number of the row's blocks or more. WHOLE_STEPS: a lane's next vector is whole blocks further.
template <bool WHOLE_STEPS>
struct RowCursor {
  int p, v, block_step, vector_step, vectors;

  // Whether the next vector is past the end of a segment, beside the whole blocks.
  __device__ __forceinline__ bool advance() {
    p += block_step;
    if constexpr (WHOLE_STEPS) return false;
    v += vector_step;
    const bool wraps = v >= vectors;
    if (wraps) {
      v -= vectors;
      ++p;
    }
    return wraps;
  }
  __device__ __forceinline__ void go_back() {
    p -= block_step;
    if constexpr (WHOLE_STEPS) return;
    v -= vector_step;
    if (v < 0) {
      v += vectors;
      --p;
    }
  }
};

// One lane's share of an element row.
template <int TEAM_THREADS, bool WHOLE_STEPS>
struct RowShare {
  typedef RowCursor<WHOLE_STEPS> Cursor;
  Cursor begin;  // the same in every row
  int row_of_team, lanes;
  long long b, start;  // matrix; the row's first block
  int blocks;          // of the row; a lane past the last row of the block has none
  int r;               // row within the block

  __device__ __forceinline__ explicit RowShare(const RowsProblem& problem) : lanes(problem.lanes) {
    const int lane = threadIdx.x % 32;
    row_of_team = lane / unsigned(lanes);
    const unsigned along = threadIdx.x % TEAM_THREADS / 32 * lanes + (lane & (lanes - 1));
    const unsigned p = along / unsigned(problem.vectors);
    begin = {int(p), int(along - p * problem.vectors), problem.block_step, problem.vector_step,
             problem.vectors};
  }

  template <typename Index>
  __device__ __forceinline__ void find(const RowsProblem& problem, const View& indptr,
                                       const Batch& batch, const RowGroup& at) {
    r = at.group * problem.rows + row_of_team;
    b = at.matrix;
    const Index* row_starts = batch_ptr<const Index>(indptr, batch, b) + at.block_row * indptr.row;
    start = row_starts[0];
    blocks = r < problem.bm ? int(row_starts[indptr.row] - start) : 0;
  }

  __device__ __forceinline__ bool has(const Cursor& at) const { return at.p < blocks; }

  // The combination of what all lanes of the row have, in each of them. `combine` gives the same
  // bits in either order of its operands.
  template <typename X, typename Combine>
  __device__ __forceinline__ X across(X mine, Combine combine) {
    for (int offset = 1; offset < lanes; offset *= 2)
      mine = combine(mine, shuffle_xor(mine, offset));
    if constexpr (TEAM_THREADS > 32) {
      // One half is written while the other may still be read, so one barrier is enough.
      __shared__ X of_warps[2][TEAM_THREADS / 32][32];
      if ((threadIdx.x & (lanes - 1)) == 0)
        of_warps[next_half][threadIdx.x / 32][row_of_team] = mine;
      __syncthreads();
      mine = of_warps[next_half][0][row_of_team];
      for (int w = 1; w < TEAM_THREADS / 32; ++w)
        mine = combine(mine, of_warps[next_half][w][row_of_team]);
      next_half ^= 1;
    }
    return mine;
  }

  int next_half = 0;  // of `of_warps`, to be written
};

// Where a lane finds its row in a matrix whose rows are blocks; the elements of a vector are side
// by side.
template <typename E, int VECTOR>
struct RowPieces {
  E* first;
  long long block, vector;  // strides

  template <typename Share>
  __device__ __forceinline__ RowPieces(const View& view, const Batch& batch, const Share& row)
      : first(batch_ptr<E>(view, batch, row.b) + row.start * view.row +
              (long long)row.r * row.begin.vectors * (VECTOR > 1 ? VECTOR : view.col)),
        block(view.row),
        vector(VECTOR > 1 ? VECTOR : view.col) {}
  template <typename Cursor>
  __device__ __forceinline__ E* operator[](const Cursor& at) const {
    return first + at.p * block + at.v * vector;
  }
  // Go from the address of one vector of a lane to that of its next one, which is cheaper than to
  // compute it; `wraps` is what the cursor's advance() has said.
  template <typename Cursor>
  __device__ __forceinline__ void advance(E*& address, const Cursor& at, bool wraps) const {
    address += at.block_step * block + at.vector_step * vector;
    if (wraps) address += block - at.vectors * vector;
  }
};

}  // namespace sparsegpu
