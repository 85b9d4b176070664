// Dense @ dense at the stored blocks at full precision: what bsr_sampled_addmm_f32.cu and
// bsr_sampled_addmm_f64.cu share.
//
// bsr_sampled_addmm_simt.cu, to be read first, says what is computed. Here the blocks that follow
// each other in a block row are computed together (common/sampled_tile.cuh): a thread block takes
// tile_m rows of mat1 once for tile_n columns of mat2, which it gathers from the columns of these
// blocks. Slices of tile_k terms pass through a pipeline of stages, as `left` and right[k][n], and
// the warps multiply them.
//
// Copies are asynchronous for any strides (common/tile_copies.cuh): single elements may lie
// anywhere. Where each column of mat2 begins is kept in shared memory, since registers hold sums.
// Deterministic: nothing is added across thread blocks.
#pragma once

#include "common/full_precision_stage.cuh"
#include "common/sampled_tile.cuh"
#include "ptx/opaque.cuh"

namespace sparsegpu {

// `Config` has the types Element, Index, Op (the epilogue) and Outputs (of a warp); bm, bn (the
// block); tile_m, tile_n (outputs of a thread block); tile_k, stages, warps; mat1_order, of
// left[k][m] or left[m][k] as Outputs has it, and mat2_order.
template <typename Config>
struct SampledFullPrecision {
  typedef typename Config::Element Element;
  typedef typename Config::Index Index;
  typedef typename Config::Op Op;
  typedef typename Config::Outputs Outputs;
  typedef FullPrecisionStage<Config, Config::mat1_order> Stage;
  typedef typename Stage::Left Left;
  typedef typename Stage::template RightCopies<Config::mat2_order> RightCopies;
  static constexpr int bm = Config::bm, bn = Config::bn, stage_count = Config::stages;
  static constexpr int tile_m = Config::tile_m, tile_n = Config::tile_n, tile_k = Config::tile_k;
  static constexpr int THREADS = Stage::THREADS;
  typedef SampledTile<tile_m, tile_n, bn> Tile;
  static_assert(Config::warps * Stage::STAGING * int(sizeof(Element)) <= stage_count * Stage::BYTES,
                "the staged outputs fit where the stages were");

  static __device__ __forceinline__ void run(unsigned char* stages, const View& out,
                                             const View& indptr, const View& indices,
                                             const View& mat1, const View& mat2, const Batch& batch,
                                             const SampledProblem& problem,
                                             const typename Op::Args& epilogue) {
    __shared__ const Element* column_at[tile_n];  // the first term of each column
    const Tile tile(blockIdx.x, indptr, batch, problem, Index());
    if (tile.blocks == 0) return;

    const long long first_term = tile.first_term(problem), terms = tile.terms(problem);
    const long long matrix = tile.matrix(problem);
    // A thread's first copies of the next slice are at `left`, and at `right` from the beginning of
    // a column of mat2 on.
    const long long row = tile.block_row * bm + tile.first_row + Left::first_m();
    const Element* left = batch_ptr<const Element>(mat1, batch, matrix) + row * mat1.row +
                          (first_term + Left::first_k()) * mat1.col;
    long long right = (first_term + RightCopies::row()) * mat2.row;
    const Element* columns = batch_ptr<const Element>(mat2, batch, matrix);
    const Index* column_of =
        batch_ptr<const Index>(indices, batch, matrix) + tile.first_block * indices.row;
    for (int n = threadIdx.x; n < tile_n; n += THREADS) {
      column_at[n] = nullptr;
      if (n >= tile.columns) continue;
      const long long block = column_of[tile.block_of(n) * indices.row];
      column_at[n] = columns + (block * bn + tile.column_in_block(n)) * mat2.col;
    }
    __syncthreads();  // the columns are known
    const int rows_here = tile.rows - Left::first_m();
    const int columns_here = tile.columns - RightCopies::column();

    Outputs outputs;
    typename Stage::Pipeline pipeline;
    auto load = [&](long long to_load) {
      if (to_load > 0) {
        const int here = int(min(to_load, (long long)tile_k));
        const long long down = opaque(mat1.row), along = opaque(mat1.col);
        Stage::template copy_left<bm % tile_m == 0, false>(stages + pipeline.stage, left, down,
                                                           along, rows_here, here);
        // All of them first: the compiler puts three more loads between a load and a copy.
        const Element* column[RightCopies::COLUMNS];
#pragma unroll
        for (int i = 0; i < RightCopies::COLUMNS; ++i)
          column[i] = column_at[RightCopies::column() + i * RightCopies::COLUMN_STEP] + right;
        RightCopies::run(
            stages + pipeline.stage + Stage::LEFT_BYTES,
            [&](int k, int n) { return column[n / RightCopies::COLUMN_STEP] + k * mat2.row; },
            [&](int, int n) { return n < columns_here; },
            [&](int k, int) { return RightCopies::row() + k < here; });
        left += tile_k * mat1.col;
        right += tile_k * mat2.row;
      }
      pipeline.advance();
    };
#pragma unroll 1
    for (int step = 0; step < stage_count - 1; ++step) load(terms - step * tile_k);
#pragma unroll 1
    for (long long to_multiply = terms; to_multiply > 0; to_multiply -= tile_k) {
      pipeline.wait();
      const unsigned char* slice = stages + pipeline.next;
      outputs.multiply(slice, slice + Stage::LEFT_BYTES, tile_k,
                       [&] { load(to_multiply - (stage_count - 1) * tile_k); });
    }
    pipeline.drain();

    const SampledOutputs<Element, Op, Tile> results(tile, out, batch, problem, epilogue);
    Stage::store(outputs, stages, [&](const Element* staged, int row) {
      results.template store<Outputs::WARP_N, Outputs::PART_ROWS>(staged, Stage::STAGING_PITCH, row,
                                                                  outputs.col);
    });
  }
};

}  // namespace sparsegpu
