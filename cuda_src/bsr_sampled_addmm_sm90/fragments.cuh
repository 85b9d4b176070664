// How the sums of a sampled product leave a warpgroup's registers, as wgmma has left them there
// (ptx/wgmma.cuh, d).
#pragma once

#include "common/output_matrix.cuh"
#include "common/sampled_tile.cuh"
#include "common/warp_reduce.cuh"
#include "ptx/opaque.cuh"
#include "ptx/st_vector.cuh"

namespace sparsegpu {

template <typename A, typename Op, typename Tile>
struct SampledFragments {
  typedef typename Op::Out Out;
  // Outputs that are stored at once where they lie side by side: eight of four lanes, or two.
  static constexpr int SIZE = sizeof(Out), RUN = SIZE <= 2 ? 8 : 2;
  static constexpr int STORED = Op::HAS_INPUT ? 32 : 64;  // columns at a time
  static_assert(Tile::BLOCK_N % 8 == 0, "eight columns are of one block");

  const Tile& tile;
  const View& view;
  const SampledProblem& problem;
  const Op finish;
  Out* out;   // of the tile's first block
  bool runs;  // a row's outputs lie side by side, aligned

  __device__ __forceinline__ SampledFragments(const Tile& tile, const View& view,
                                              const Batch& batch, const SampledProblem& problem,
                                              const typename Op::Args& epilogue)
      : tile(tile), view(view), problem(problem), finish(epilogue, batch, tile.matrix(problem)) {
    out = batch_ptr<Out>(view, batch, tile.matrix(problem)) + tile.first_block * problem.out_step +
          tile.split(problem) * problem.split_step;
    runs = view.col == 1 && (view.row | problem.out_step) % RUN == 0 &&
           reinterpret_cast<unsigned long long>(out) % (RUN * SIZE) == 0;
  }

  // The outputs of two columns of a row, if they are there.
  __device__ __forceinline__ void finish_pair(Out (&values)[2], const A* sums, bool here,
                                              long long row, int col) const {
    const int block = tile.block_of(col), column = tile.column_in_block(col);
    Op op = finish;
    if constexpr (Op::HAS_INPUT) {
      if (!here) return;
      op.input += (tile.first_block + block) * problem.input_step;
    }
    values[0] = op(sums[0], row, column);
    values[1] = op(sums[1], row, column + 1);
  }

  // From the tile's first block to a column's place in its block.
  __device__ __forceinline__ long long offset(int col) const {
    return tile.block_of(col) * problem.out_step + tile.column_in_block(col) * view.col;
  }

  // Store a warp's sixteen rows from `top` on, WIDTH columns from `col` on: what the tile has of
  // them. Two rows and some columns at a time: a warp waits for one exchange while it makes others;
  // what all columns need does not fit the registers that the sums leave.
  template <int WIDTH>
  __device__ __forceinline__ void store(const A (&sums)[WIDTH / 2], int top, int col) const {
    const int lane = threadIdx.x % 32, t = lane % 4;
    const int first_row = top + lane / 4, columns = tile.columns;
    const bool here[2] = {first_row < tile.rows, first_row + 8 < tile.rows};
    Out* const row_at[2] = {out + (tile.first_row + first_row) * view.row,
                            out + (tile.first_row + first_row + 8) * view.row};
#pragma unroll
    for (int c = 0; c < WIDTH; c += STORED) {
      const int first = opaque(col) + c;
      if (first < columns) {
        unsigned words[STORED / 32][2][4];
#pragma unroll
        for (int i = 0; i < STORED / 8; ++i) {
          const int n = first + 8 * i + 2 * t;
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const bool there = here[r] && n < columns;
            Out pair[2] = {};
            finish_pair(pair, &sums[(c / 8 + i) * 4 + 2 * r], there,
                        tile.first_row + first_row + 8 * r, n);
            if (RUN == 8 && runs) {
              unsigned& word = words[i / 4][r][i % 4];
              word = 0;
              memcpy(&word, pair, sizeof(pair));
            } else if (there) {
              Out* const to = row_at[r] + offset(n);
              if (RUN == 2 && runs) {
                *reinterpret_cast<Pair<Out>*>(to) = {pair[0], pair[1]};
              } else {
                to[0] = pair[0];
                to[view.col] = pair[1];
              }
            }
          }
        }
        if (RUN == 8 && runs) {
#pragma unroll
          for (int g = 0; g < STORED / 32; ++g)
#pragma unroll
            for (int r = 0; r < 2; ++r) transpose_across_lanes(words[g][r]);
#pragma unroll
          for (int g = 0; g < STORED / 32; ++g) {
            const int n = first + 32 * g + 8 * t;
            const long long place = offset(n);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              const unsigned (&w)[4] = words[g][r];
              if (!here[r] || n >= columns) continue;
              if constexpr (SIZE == 2)
                st_vector(row_at[r] + place, w[0], w[1], w[2], w[3]);
              else
                *reinterpret_cast<Pair<unsigned>*>(row_at[r] + place) = {w[0] | w[1] << 16,
                                                                         w[2] | w[3] << 16};
            }
          }
        }
      }
    }
  }
};

}  // namespace sparsegpu
