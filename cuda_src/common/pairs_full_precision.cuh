// Sparse times sparse at full precision: what bsr_spgemm_f32.cu and bsr_spgemm_f64_tiled.cu share.
//
// bsr_spgemm_simt.cu, to be read first, says what is computed. Here a thread block computes
// tile_m x tile_n outputs of one block of the result. Terms come in slices of tile_k columns of one
// left block (the last slice of a block may have fewer), through a pipeline of stages in shared
// memory, as left[k][m] or left[m][k] and right[k][n], which the warps multiply.
//
// Copies are asynchronous for any block size (common/tile_copies.cuh).
#pragma once

#include "common/block_pairs.cuh"
#include "common/ceil_div.cuh"
#include "common/full_precision_stage.cuh"
#include "common/types.cuh"

namespace sparsegpu {

// `Config` has the types Element, Out, Pair (of the list of pairs) and Outputs (of a warp); bm, bk,
// bn (the blocks); tile_m, tile_n (outputs of a thread block); tile_k, stages, warps; left_order,
// of left[k][m] or left[m][k] as Outputs has it, and right_order.
template <typename Config>
struct PairsFullPrecision {
  typedef typename Config::Element Element;
  typedef typename Config::Out Out;
  typedef typename Config::Pair Pair;
  typedef typename Config::Outputs Outputs;
  typedef FullPrecisionStage<Config, Config::left_order> Stage;
  typedef typename Stage::Left Left;
  typedef typename Stage::template RightCopies<Config::right_order> RightCopies;
  static constexpr int bm = Config::bm, bk = Config::bk, bn = Config::bn;
  static constexpr int tile_m = Config::tile_m, tile_n = Config::tile_n, tile_k = Config::tile_k;
  static constexpr int THREADS = Stage::THREADS;
  static constexpr bool WHOLE_ROWS = bm % tile_m == 0, WHOLE_COLUMNS = bn % tile_n == 0;
  static constexpr bool WHOLE_TERMS = bk % tile_k == 0;

  static __device__ __forceinline__ void run(unsigned char* stages, Out* out, const Element* a,
                                             const Element* b, const long long* starts,
                                             const Pair* pairs, const PairsProblem& problem) {
    constexpr int row_tiles = ceil_div(bm, tile_m), col_tiles = ceil_div(bn, tile_n);
    const long long tiles = problem.blocks * row_tiles * col_tiles;
    for (long long x = blockIdx.x; x < tiles; x += gridDim.x) {
      const int first_row = int(x % row_tiles) * tile_m;
      const int first_col = int(x / row_tiles % col_tiles) * tile_n;
      const long long g = problem.first + x / row_tiles / col_tiles;
      const long long begin = starts[g] - problem.base;
      const long long slices = (starts[g + 1] - problem.base - begin) * ceil_div(bk, tile_k);
      const int rows_here = bm - first_row - Left::first_m();
      const int columns_here = bn - first_col - RightCopies::column();

      // A thread's first copy in left block 0 and right block 0, and in the next slice.
      const Element* const left_first = a + (first_row + Left::first_m()) * bk + Left::first_k();
      const Element* const right_first =
          b + RightCopies::row() * bn + first_col + RightCopies::column();
      const Element *left = nullptr, *right = nullptr;
      const Pair* pair = pairs + 2 * begin;
      Pair next_left = 0, next_right = 0;  // read a slice ahead of their copies
      int k = 0;                           // the next slice's first term of its pair
      if (slices > 0) next_left = pair[0], next_right = pair[1];

      Outputs outputs;
      typename Stage::Pipeline pipeline;
      auto load = [&](long long to_load) {
        if (to_load > 0) {
          if (k == 0) {
            left = left_first + (long long)next_left * (bm * bk);
            right = right_first + (long long)next_right * (bk * bn);
          }
          const int here = bk - k;
          Stage::template copy_left<WHOLE_ROWS, WHOLE_TERMS>(stages + pipeline.stage, left, bk, 1,
                                                             rows_here, here);
          RightCopies::run(
              stages + pipeline.stage + Stage::LEFT_BYTES,
              [&](int r, int c) { return right + r * bn + c; },
              [&](int, int c) { return WHOLE_COLUMNS || c < columns_here; },
              [&](int r, int) { return WHOLE_TERMS || RightCopies::row() + r < here; });
          left += tile_k;
          right += tile_k * bn;
          k += tile_k;
          if (k >= bk) {
            k = 0;
            pair += 2;
            if (to_load > 1) next_left = pair[0], next_right = pair[1];
          }
        }
        pipeline.advance();
      };
      Stage::template multiply<bk>(outputs, stages, pipeline, slices, load);

      constexpr int PART_ROWS = Outputs::PART_ROWS, WARP_N = Outputs::WARP_N;
      Out* block = out + g * (bm * bn) + first_row * bn + first_col;
      const int columns = min(bn - first_col - outputs.col, WARP_N);
      Stage::store(outputs, stages, [&](const Element* staged, int top) {
        const int rows = min(bm - first_row - top, PART_ROWS);
#pragma unroll 1
        for (int e = threadIdx.x % 32; e < PART_ROWS * WARP_N; e += 32) {
          const int m = e / WARP_N, n = e % WARP_N;
          if (m < rows && n < columns)
            block[(top + m) * bn + outputs.col + n] =
                round_to<Out>(staged[m * Stage::STAGING_PITCH + n]);
        }
      });
      __syncthreads();  // before the next tile's slices arrive
    }
  }
};

}  // namespace sparsegpu
