// Element rows of a BSR matrix, shared out to threads in vectors of neighbouring elements.
//
// An element row of a block row is a piece of bk elements in each of its blocks, bm * bk elements
// apart. A team of threads takes `rows` element rows of one block row at a time (a power of two, at
// most 32). Within a warp 32 / rows lanes go along each row, from vector to vector and from block
// to block. With rows = 4 and vectors of eight, a warp reads four times 128 consecutive bytes of
// 16x16 blocks in bfloat16; of 64x64 blocks, with rows = 1, four pieces of 128 bytes.
#pragma once

#include "common/vector16.cuh"
#include "common/view.cuh"
#include "common/warp_reduce.cuh"
#include "ptx/opaque.cuh"

namespace sparsegpu {

// What is shared out: `items` are the groups of `rows` element rows in all block rows and matrices.
struct RowsProblem {
  long long groups, items, block_rows;  // groups: of one block row
  int bm, vectors, rows;                // vectors: of a piece
};

// Neighbouring elements, moved by as few accesses as their bytes allow.
template <typename E, int N>
struct Pack {
  typedef typename Word<(N * sizeof(E) < 16 ? N * sizeof(E) : 16)>::type Part;
  static constexpr int PARTS = N * sizeof(E) / sizeof(Part);
  alignas(16) E value[N];

  __device__ __forceinline__ void load(const E* from) {
#pragma unroll
    for (int i = 0; i < PARTS; ++i)
      reinterpret_cast<Part*>(value)[i] = reinterpret_cast<const Part*>(from)[i];
  }
  __device__ __forceinline__ void store(E* to) const {
#pragma unroll
    for (int i = 0; i < PARTS; ++i)
      reinterpret_cast<Part*>(to)[i] = reinterpret_cast<const Part*>(value)[i];
  }
  __device__ __forceinline__ void fill(E x) {
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = x;
  }
  // Let no conversion of the elements be kept beside them (ptx/opaque.cuh).
  __device__ __forceinline__ void forget() {
    if constexpr (sizeof(E) < 4 && N * sizeof(E) >= 4) {
#pragma unroll
      for (int i = 0; i < int(N * sizeof(E) / 4); ++i)
        reinterpret_cast<unsigned*>(value)[i] = opaque(reinterpret_cast<unsigned*>(value)[i]);
    }
  }
};

// A lane's place in its row: vector v of the piece in the row's block p. Past the end, p is the
// number of the row's blocks or more.
struct RowCursor {
  int p, v, block_step, vector_step, vectors;

  __device__ __forceinline__ void advance() {
    p += block_step;
    v += vector_step;
    if (v >= vectors) {
      v -= vectors;
      ++p;
    }
  }
  // The same place, from which what was computed of this one is computed again: pointers to all
  // vectors of a lane would take the registers that its values need.
  __device__ __forceinline__ RowCursor again() const {
    return {opaque(p), opaque(v), block_step, vector_step, vectors};
  }
};

// One lane's share of an element row.
template <int TEAM_THREADS>
struct RowShare {
  long long b, start;      // matrix; the row's first block
  int blocks;              // of the row; a lane past the last row of the block has none
  int r;                   // row within the block
  int lanes, first, step;  // lanes of a warp along the row; this one's first vector, and its next
  int vectors;

  template <typename Index>
  __device__ __forceinline__ void find(const RowsProblem& problem, const View& indptr,
                                       const Batch& batch, long long item) {
    const int lane = threadIdx.x % 32;
    lanes = 32 / problem.rows;
    first = threadIdx.x % TEAM_THREADS / 32 * lanes + lane % lanes;
    step = lanes * (TEAM_THREADS / 32);
    vectors = problem.vectors;
    const long long block_row = item / problem.groups;
    r = int(item - block_row * problem.groups) * problem.rows + lane / lanes;
    b = block_row / problem.block_rows;
    const Index* row_starts = batch_ptr<const Index>(indptr, batch, b) +
                              (block_row - b * problem.block_rows) * indptr.row;
    start = row_starts[0];
    blocks = r < problem.bm ? int(row_starts[indptr.row] - start) : 0;
  }

  __device__ __forceinline__ RowCursor begin() const {
    return {first / vectors, first % vectors, step / vectors, step % vectors, vectors};
  }
  // The place of this lane's vector number n.
  __device__ __forceinline__ RowCursor cursor(long long n) const {
    const long long at = first + n * step;
    return {int(at / vectors), int(at % vectors), step / vectors, step % vectors, vectors};
  }
  __device__ __forceinline__ bool has(const RowCursor& at) const { return at.p < blocks; }
  // How often any lane of this row takes `count` vectors, after the first `before`.
  __device__ __forceinline__ long long rounds(int before, int count) const {
    const long long left = (long long)blocks * vectors - (long long)before * step;
    return left <= 0 ? 0 : (left - 1) / ((long long)count * step) + 1;
  }
};

// Where a lane finds its row in a matrix whose rows are blocks.
template <typename E, int VECTOR>
struct RowPieces {
  E* first;
  long long block, vector;  // strides

  template <typename Share>
  __device__ __forceinline__ RowPieces(const View& view, const Batch& batch, const Share& row)
      : first(batch_ptr<E>(view, batch, row.b) + row.start * view.row +
              (long long)row.r * row.vectors * VECTOR * view.col),
        block(view.row),
        vector(VECTOR * view.col) {}
  __device__ __forceinline__ E* operator[](const RowCursor& at) const {
    return first + at.p * block + at.v * vector;
  }
};

// The combination of what all lanes of a row have, in each of them. `combine` is asked for two
// neighbours in the same order on both sides, so that they agree to the last bit.
template <int TEAM_THREADS, typename X, typename Combine>
__device__ __forceinline__ X across_team(X mine, int lanes, Combine combine) {
  const int lane = threadIdx.x % 32;
  for (int offset = 1; offset < lanes; offset *= 2) {
    const X other = shuffle_xor(mine, offset);
    mine = lane & offset ? combine(other, mine) : combine(mine, other);
  }
  if constexpr (TEAM_THREADS > 32) {
    __shared__ X of_warps[TEAM_THREADS / 32][32];
    __syncthreads();  // those of the rows before have been read
    if (lane % lanes == 0) of_warps[threadIdx.x / 32][lane / lanes] = mine;
    __syncthreads();
    mine = of_warps[0][lane / lanes];
    for (int w = 1; w < TEAM_THREADS / 32; ++w) mine = combine(mine, of_warps[w][lane / lanes]);
  }
  return mine;
}

}  // namespace sparsegpu
