// Products of blocks, added where index lists say, at full precision: what scatter_mm_f32.cu and
// scatter_mm_f64.cu share.
//
// scatter_mm_simt.cu, to be read first, says what is computed. Here the terms of a tile come in
// slices of tile_k columns of one block (the last slice of a block may have fewer), through a
// pipeline of stages in shared memory, as left[k][m] or left[m][k] and right[k][n], which the warps
// multiply. The sums pass through shared memory, so that accumulators are read and written in
// vectors where their rows allow it.
//
// Copies are asynchronous for any strides (common/tile_copies.cuh). Where others are copied in
// vectors, the other of a pair may still begin between multiples of 16 bytes, as the offsets of the
// strided formats say: it is then copied by element.
#pragma once

#include "common/full_precision_stage.cuh"
#include "common/pair_sum.cuh"
#include "common/scatter_store.cuh"
#include "ptx/opaque.cuh"

namespace sparsegpu {

// `Config` has the types Element, Index (of the lists), Op (the epilogue) and Outputs (of a warp);
// format; ks, the columns of a block; tile_m, tile_n (outputs of a thread block); tile_k, stages,
// warps; group_size; left_order, of left[k][m] or left[m][k] as Outputs has it, and right_order.
template <typename Config>
struct ScatterFullPrecision {
  typedef typename Config::Element Element;
  typedef typename Config::Index Index;
  typedef typename Config::Op Op;
  typedef typename Config::Outputs Outputs;
  typedef FullPrecisionStage<Config, Config::left_order> Stage;
  typedef typename Stage::Left Left;
  static constexpr ListFormat format = Config::format;
  static constexpr int ks = Config::ks, tile_k = Config::tile_k, THREADS = Stage::THREADS;
  static constexpr int SLICES = ceil_div(ks, tile_k);  // of a block
  static constexpr bool WHOLE_TERMS = ks % tile_k == 0;
  typedef ScatterPart<format, Config::tile_m, Config::tile_n, Config::group_size> Part;

  // Copy the rows of others that the terms of a slice meet, of which `terms` exist.
  template <CopyOrder ORDER>
  static __device__ __forceinline__ void copy_right(unsigned char* to, const Element* right,
                                                    const View& others, int columns, int terms) {
    typedef typename Stage::template RightCopies<ORDER> Copies;
    const long long down = opaque(others.row), along = opaque(others.col);
    right += Copies::row() * down + Copies::column() * along;
    Copies::run(
        to, [&](int r, int c) { return right + r * down + c * along; },
        [&](int, int c) { return Copies::column() + c < columns; },
        [&](int r, int) { return WHOLE_TERMS || Copies::row() + r < terms; });
  }

  static __device__ __forceinline__ void run(unsigned char* stages, const View& accumulators,
                                             const View& blocks, const View& others,
                                             const Lists<Index>& lists, const Batch& batch,
                                             const ScatterProblem& problem,
                                             const typename Op::Args& epilogue) {
    const long long parts = Part::count(problem);
    for (long long x = blockIdx.x; x < parts; x += gridDim.x) {
      const Part part(problem, x);
      const PairSum<format> tile(lists, problem, part.tile);
      const long long slices = (tile.end - tile.first) * SLICES;
      const int rows_here = part.rows - Left::first_m();

      // A thread's first copy of a block at place 0, and the first element of an other there.
      const Element* const left_first = static_cast<const Element*>(blocks.ptr) +
                                        (part.first_row + Left::first_m()) * blocks.row +
                                        Left::first_k() * blocks.col;
      const Element* right_first =
          static_cast<const Element*>(others.ptr) + part.first_col * others.col;
      if constexpr (format != ListFormat::pairs)
        right_first += batch_offset(others, batch, part.batch);
      const Element *left = nullptr, *right = nullptr;  // of the next slice
      bool aligned = true;                              // so is `right`
      long long next_block = 0, next_other = 0;         // looked up a slice ahead of their copies
      long long pair = tile.first;
      int k = 0;  // the next slice's first term of its pair
      auto look_up = [&] {
        tile.locate(lists, problem, blocks, others, pair, next_block, next_other);
      };
      if (slices > 0) look_up();

      Outputs outputs;
      typename Stage::Pipeline pipeline;
      auto load = [&](long long to_load) {
        if (to_load > 0) {
          if (k == 0) {
            left = left_first + next_block;
            right = right_first + next_other;
            aligned = format == ListFormat::pairs || next_other % Stage::VECTOR == 0;
          }
          const int here = ks - k;
          // Products of strides are formed again for every slice: registers hold sums.
          const long long down = opaque(blocks.row), along = opaque(blocks.col);
          Stage::template copy_left<false, WHOLE_TERMS>(stages + pipeline.stage, left, down, along,
                                                        rows_here, here);
          unsigned char* const to = stages + pipeline.stage + Stage::LEFT_BYTES;
          if (Config::right_order == CopyOrder::vectors && !aligned)
            copy_right<CopyOrder::rows>(to, right, others, part.columns, here);
          else
            copy_right<Config::right_order>(to, right, others, part.columns, here);
          left += tile_k * blocks.col;
          right += tile_k * others.row;
          k += tile_k;
          if (k >= ks) {
            k = 0;
            ++pair;
            if (to_load > 1) look_up();
          }
        }
        pipeline.advance();
      };
      Stage::template multiply<ks>(outputs, stages, pipeline, slices, load);

      const OutputMatrix<Op> matrix(accumulators, batch, epilogue, part.batch);
      const TileAccumulators<OutputMatrix<Op>> sums(
          matrix, tile.row + part.first_row, tile.col + part.first_col, part.rows, part.columns);
      Stage::store(outputs, stages, [&](const Element* staged, int row) {
        sums.template add<Outputs::WARP_N, Stage::STAGING_PITCH, Outputs::PART_ROWS>(staged, row,
                                                                                     outputs.col);
      });
      __syncthreads();  // before the next part's slices arrive
    }
  }
};

}  // namespace sparsegpu
