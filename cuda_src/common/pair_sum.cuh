// The lists of scatter_mm: which pairs of blocks each tile of the accumulators is the sum of.
//
//   ListFormat::pairs        tile r has the pairs pq[starts[r]:starts[r + 1]]; blocks, others and
//                            accumulators are stacks of matrices
//   ListFormat::strided      tile i begins at r_offsets[i] in accumulators, its others at
//                            q_offsets[g]: offsets row * N + column into matrices of N columns
//   ListFormat::compressed   the same with starts = indptr: the blocks of a tile are those of its
//                            block row c0..c1, and with n its column split they meet
//                            q_offsets[n * c1 + (split - n) * c0 ...]
#pragma once

#include "common/ceil_div.cuh"
#include "common/view.cuh"

namespace sparsegpu {

enum class ListFormat { pairs, strided, compressed };

// The lists; those that a format does not have are null. pairs: p_offsets is pq, row by row.
template <typename Index>
struct Lists {
  const Index *starts, *r_offsets, *p_offsets, *q_offsets;
};

struct ScatterProblem {
  long long tiles, batches, n;  // n: of the strided formats
  int ms, ks, ns, split;
};

// Which HEIGHT x WIDTH part of which output tile a thread block computes, by its number.
//
// GROUP rows of parts go through the columns together, as GROUP_SIZE says in Triton's kernels: the
// thread blocks that run at the same time read few columns of the others and few rows of the
// blocks.
template <ListFormat LISTED, int HEIGHT, int WIDTH, int GROUP>
struct ScatterPart {
  int first_row, first_col, rows, columns;  // within the tile
  long long tile, batch;                    // pairs: the tiles are the batch

  static __device__ __forceinline__ long long row_slices(const ScatterProblem& problem) {
    return ceil_div(problem.ms, HEIGHT);
  }
  static __device__ __forceinline__ long long col_slices(const ScatterProblem& problem) {
    return ceil_div(problem.ns, WIDTH);
  }
  static __device__ __forceinline__ long long count(const ScatterProblem& problem) {
    return problem.tiles * problem.batches * row_slices(problem) * col_slices(problem);
  }

  __device__ __forceinline__ ScatterPart(const ScatterProblem& problem, long long number) {
    const long long down = row_slices(problem), across = col_slices(problem);
    const long long place = number / (down * across), within = number - place * (down * across);
    const long long top = within / (GROUP * across) * GROUP;  // the first row of this group
    const long long height = min((long long)GROUP, down - top), step = within - top * across;
    first_row = int(top + step % height) * HEIGHT;
    first_col = int(step / height) * WIDTH;
    tile = place % problem.tiles;
    batch = LISTED == ListFormat::pairs ? tile : place / problem.tiles;
    rows = min(HEIGHT, problem.ms - first_row);
    columns = min(WIDTH, problem.ns - first_col);
  }
};

// One output tile: where it begins and which pairs it sums.
template <ListFormat LISTED>
struct PairSum {
  long long row, col;        // of its first element in the matrix
  long long first, end;      // pairs g
  long long first_q_offset;  // compressed: that of pair `first`

  template <typename Index>
  __device__ __forceinline__ PairSum(const Lists<Index>& lists, const ScatterProblem& problem,
                                     long long i) {
    row = col = 0;
    first_q_offset = 0;
    long long list = i;
    if constexpr (LISTED != ListFormat::pairs) {
      row = lists.r_offsets[i] / problem.n;
      col = lists.r_offsets[i] % problem.n;
    }
    if constexpr (LISTED == ListFormat::compressed) list = row / problem.ms;
    first = lists.starts[list];
    end = lists.starts[list + 1];
    if constexpr (LISTED == ListFormat::compressed) {
      const long long n = col / problem.ns;
      first_q_offset = n * end + (problem.split - n) * first;
    }
  }

  // The block of pair g, and its other: a number, or an offset of the strided formats.
  template <typename Index>
  __device__ __forceinline__ void numbers(const Lists<Index>& lists, long long g, long long& p,
                                          long long& q) const {
    if constexpr (LISTED == ListFormat::pairs) {
      p = lists.p_offsets[2 * g];
      q = lists.p_offsets[2 * g + 1];
    } else if constexpr (LISTED == ListFormat::strided) {
      p = lists.p_offsets[g];
      q = lists.q_offsets[g];
    } else {
      p = g;
      q = lists.q_offsets[first_q_offset + g - first];
    }
  }
  // Where the block and the other of pair g start.
  template <typename Index>
  __device__ __forceinline__ void locate(const Lists<Index>& lists, const ScatterProblem& problem,
                                         const View& blocks, const View& others, long long g,
                                         long long& block, long long& other) const {
    long long p, q;
    numbers(lists, g, p, q);
    block = p * blocks.batch[3];
    if (LISTED == ListFormat::pairs) {
      other = q * others.batch[3];
    } else if (others.row == problem.n && others.col == 1) {
      other = q;  // as it is counted: division is slow
    } else {
      const long long down = q / problem.n;
      other = element_offset(others, down, q - down * problem.n);
    }
  }
};

}  // namespace sparsegpu
