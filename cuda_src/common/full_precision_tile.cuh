// BSR @ dense at full precision: what bsr_addmm_f32.cu and bsr_addmm_f64.cu share.
//
// The idea is that of bsr_addmm_simt.cu, to be read first. Here the terms of a block row come in
// slices of tile_k columns of one block (the last slice of a block may have fewer), so that a slice
// has one place in data and one in dense. A pipeline of `stages` slices in shared memory holds them
// as left[m][k] and right[k][n], which the kernel multiplies.
//
// Copies are asynchronous for any block size and layout (common/tile_copies.cuh).
//
// With `transposed` the product is that of the matrix's transpose, without forming it: the pattern
// is the sorted one of the transpose, and its block p is number order[p] of data, column by column.
//
// The block rows are taken in the order `rows`, those with most blocks first.
#pragma once

#include "common/ceil_div.cuh"
#include "common/cp_async_pipeline.cuh"
#include "common/tile_copies.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "ptx/opaque.cuh"

namespace sparsegpu {

struct FullPrecisionProblem {
  long long batches, block_rows, n;
  long long raster_width;  // column tiles of a raster band
};

// `Config` has the types Element, Index and Op (the epilogue); bm, bk (the block); tile_m, tile_n
// (outputs of a thread block, shared by warps_m x warps_n warps); tile_k, stages; data_order and
// dense_order; transposed.
template <typename Config>
struct FullPrecisionProduct {
  typedef typename Config::Element Element;
  typedef typename Config::Index Index;
  typedef typename Config::Op Op;
  typedef typename Op::Out Output;
  static constexpr int bm = Config::bm, bk = Config::bk, tile_k = Config::tile_k;
  static constexpr int tile_m = Config::tile_m, tile_n = Config::tile_n;
  static constexpr int stage_count = Config::stages;
  static constexpr bool transposed = Config::transposed;
  static_assert(transposed == (Config::data_order == CopyOrder::columns), "as the blocks lie");

  static constexpr int THREADS = 32 * Config::warps_m * Config::warps_n;
  static constexpr int WARP_M = tile_m / Config::warps_m, WARP_N = tile_n / Config::warps_n;
  static_assert(tile_m % Config::warps_m == 0 && tile_n % Config::warps_n == 0,
                "warps share the tile");
  static constexpr int SIZE = sizeof(Element), VECTOR = 16 / SIZE;
  static constexpr int ROW_TILES = ceil_div(bm, tile_m);  // of a block row
  static constexpr int SLICES = ceil_div(bk, tile_k);     // of a block
  static constexpr bool WHOLE_ROWS = bm % tile_m == 0;

  // Where a tile of the output lies. Thread blocks that run at the same time share the dense
  // operand of `raster_width` column tiles, and within these take the block rows with most blocks
  // first (longest processing time first), so that all finish at about the same time.
  struct TilePlace {
    long long batch, block_row, first_col;
    int first_row;  // within the block row

    __device__ __forceinline__ TilePlace(long long tile, const FullPrecisionProblem& problem,
                                         const View& rows, const Batch& shape) {
      const long long row_tiles = problem.batches * problem.block_rows * ROW_TILES;
      const long long column_tiles = ceil_div(problem.n, tile_n);
      const long long width = problem.raster_width;
      // Unlike BandRaster, the first band is the narrow one, so that the last tiles are many and
      // sorted.
      const long long lacking = (width - column_tiles % width) % width;
      const long long group = (tile / row_tiles + lacking) / width;
      const long long first = max(group * width - lacking, 0LL);
      const long long group_width = width - (group == 0 ? lacking : 0);
      const long long within = tile - first * row_tiles;
      long long x = within / group_width;
      first_col = (first + within - x * group_width) * tile_n;
      first_row = int(x % ROW_TILES) * tile_m;
      x /= ROW_TILES;
      block_row = x / problem.batches;
      batch = x - block_row * problem.batches;
      if (rows.ptr) block_row = batch_ptr<const Index>(rows, shape, batch)[block_row * rows.row];
    }
    __device__ __forceinline__ int rows() const { return min(tile_m, bm - first_row); }
    __device__ __forceinline__ int columns(const FullPrecisionProblem& problem) const {
      return int(min((long long)tile_n, problem.n - first_col));
    }
  };

  // The operands of one tile of the output. What a tile holds beyond `rows` or `columns` is not
  // written, so it may be anything; what a slice holds beyond its block must be zero.
  template <typename WarpOutputs>
  struct Operands {
    static constexpr int DEPTH = WarpOutputs::DEPTH;
    static constexpr bool WHOLE = bk % DEPTH == 0;
    static constexpr bool BY_TERM = WarpOutputs::LEFT_BY_TERM;  // left[k][m], not left[m][k]
    static constexpr CopyOrder DATA_ORDER = Config::data_order;
    static constexpr CopyOrder LEFT_ORDER = !BY_TERM                           ? DATA_ORDER
                                            : DATA_ORDER == CopyOrder::columns ? CopyOrder::rows
                                                                               : CopyOrder::columns;
    typedef TileCopies<Element, THREADS, LEFT_ORDER, BY_TERM ? DEPTH : tile_m,
                       BY_TERM ? tile_m : DEPTH, WarpOutputs::LEFT_PITCH>
        LeftCopies;
    typedef LeftPlaces<LeftCopies, BY_TERM> Left;
    typedef TileCopies<Element, THREADS, Config::dense_order, DEPTH, tile_n,
                       WarpOutputs::RIGHT_PITCH>
        RightCopies;
    static constexpr int LEFT_BYTES = (BY_TERM ? tile_k : tile_m) * WarpOutputs::LEFT_PITCH;
    static constexpr int SLICE_BYTES = LEFT_BYTES + tile_k * WarpOutputs::RIGHT_PITCH;
    static constexpr int ROW_STEP = transposed ? 1 : bk;  // in a block
    static constexpr int COLUMN_STEP = transposed ? bm : 1;

    const Element* block;  // where this thread's first copy of place 0 of data starts ...
    const Element* panel;  // ... and of dense
    int rows, columns;

    __device__ __forceinline__ Operands(const Element* block, const Element* panel, int rows,
                                        int columns, const View& dense)
        : block(block + Left::first_m() * ROW_STEP + Left::first_k() * COLUMN_STEP),
          panel(panel + RightCopies::row() * dense.row + RightCopies::column() * dense.col),
          rows(rows - Left::first_m()),
          columns(columns - RightCopies::column()) {}

    // Copy tile_k columns, from column `first` on, of the block at place p of data, and the rows of
    // dense that they meet: those of block column c.
    __device__ __forceinline__ void load(unsigned char* stage, long long p, Index c, int first,
                                         const View& dense) const {
      const Element* left = block + p * (bm * bk) + first * COLUMN_STEP;
      const Element* right = panel + ((long long)c * bk + first) * dense.row;
      const int left_terms = bk - first - Left::first_k(),
                right_terms = bk - first - RightCopies::row();
      LeftCopies::run(
          stage,
          [&](int r, int c) {
            return left + Left::m_of(r, c) * ROW_STEP + Left::k_of(r, c) * COLUMN_STEP;
          },
          [&](int r, int c) { return WHOLE_ROWS || Left::m_of(r, c) < rows; },
          [&](int r, int c) { return WHOLE || Left::k_of(r, c) < left_terms; });
      RightCopies::run(
          stage + LEFT_BYTES, [&](int k, int n) { return right + k * dense.row + n * dense.col; },
          [&](int, int n) { return n < columns; },
          [&](int k, int) { return WHOLE || k < right_terms; });
    }
  };

  // Where the outputs of a tile go.
  struct Destination {
    const Op finish;
    Output* out;  // the tile's first element
    long long row, col, top, left;
    int rows, columns;  // of the tile

    __device__ __forceinline__ bool by_column() const { return row < col; }

    // Whether VECTOR neighbouring outputs of a row may be written at once.
    __device__ __forceinline__ bool vectorized() const {
      const long long bits = reinterpret_cast<long long>(out) | row * (long long)sizeof(Output);
      return col == 1 && bits % sizeof(OutputVector) == 0;
    }
    __device__ __forceinline__ void write(int m, int n, Element sum) const {
      out[m * row + n * col] = finish(sum, top + m, left + n);
    }
    __device__ __forceinline__ void write_vector(int m, int n, const Element* sums) const {
      OutputVector vector;
#pragma unroll
      for (int i = 0; i < VECTOR; ++i) vector.outputs[i] = finish(sums[i], top + m, left + n + i);
      *reinterpret_cast<OutputVector*>(out + m * row + n) = vector;
    }

   private:
    struct alignas(VECTOR * sizeof(Output)) OutputVector {
      Output outputs[VECTOR];
    };
  };

  // A warp's staging buffer of HEIGHT x WARP_N outputs: they pass through shared memory, so that
  // neighbouring lanes write neighbouring outputs, and so that the code of the epilogue exists
  // once.
  template <int HEIGHT>
  struct StagedRows {
    static constexpr int PITCH = WARP_N + VECTOR;
    static constexpr int BYTES = HEIGHT * PITCH * SIZE;
    Element* at;

    __device__ __forceinline__ explicit StagedRows(unsigned char* buffers)
        : at(reinterpret_cast<Element*>(buffers + threadIdx.x / 32 * BYTES)) {}

    // Write what lies within the tile, where the buffer starts at (row, col).
    __device__ __forceinline__ void write_all(int row, int col, const Destination& to) const {
      __syncwarp();
      if (to.vectorized() && col + WARP_N <= to.columns) {
#pragma unroll 1
        for (int e = threadIdx.x % 32; e < HEIGHT * (WARP_N / VECTOR); e += 32) {
          const int m = e / (WARP_N / VECTOR), n = e % (WARP_N / VECTOR) * VECTOR;
          if (row + m < to.rows) to.write_vector(row + m, col + n, at + m * PITCH + n);
        }
      } else {
#pragma unroll 1
        for (int e = threadIdx.x % 32; e < HEIGHT * WARP_N; e += 32) {
          const int m = to.by_column() ? e % HEIGHT : e / WARP_N;
          const int n = to.by_column() ? e / HEIGHT : e % WARP_N;
          if (row + m < to.rows && col + n < to.columns)
            to.write(row + m, col + n, at[m * PITCH + n]);
        }
      }
      __syncwarp();
    }
  };

  // What a thread block does: the kernels differ in WarpOutputs alone, which multiply slices.
  template <typename WarpOutputs>
  static __device__ __forceinline__ void run(
      unsigned char* stages, const View& out, const View& rows, const View& indptr,
      const View& indices, const View& order, const View& data, const View& dense,
      const Batch& batch, const FullPrecisionProblem& problem, const typename Op::Args& epilogue) {
    typedef Operands<WarpOutputs> Slice;
    const long long row_tiles = problem.batches * problem.block_rows * ROW_TILES;
    const long long column_tiles = ceil_div(problem.n, tile_n);

    // A thread block takes several tiles only where they are more than a grid may have.
    for (long long tile = blockIdx.x; tile < row_tiles * column_tiles; tile += gridDim.x) {
      const TilePlace at(tile, problem, rows, batch);
      const Index* column_of = nullptr;  // of the block row's blocks
      const long long* place_of = nullptr;
      long long first_block = 0, first_place = 0;
      int steps = 0;
      if (indptr.ptr) {
        const Index* starts =
            batch_ptr<const Index>(indptr, batch, at.batch) + at.block_row * indptr.row;
        first_block = starts[0];
        steps = int(starts[indptr.row] - first_block) * SLICES;
        column_of = batch_ptr<const Index>(indices, batch, at.batch) + first_block * indices.row;
        if constexpr (transposed) {
          place_of = batch_ptr<const long long>(order, batch, at.batch) + first_block * order.row;
          first_place = batch_offset(order, batch, at.batch);
        }
      }
      const Slice operands(
          batch_ptr<const Element>(data, batch, at.batch) + at.first_row * Slice::ROW_STEP,
          batch_ptr<const Element>(dense, batch, at.batch) + at.first_col * dense.col, at.rows(),
          at.columns(problem), dense);

      // STAGES - 1 slices are in flight while one is multiplied. Each step commits one group of
      // copies, an empty one at the end, so that the count of groups to wait for stays the same.
      // Where a block lies is read one block ahead.
      WarpOutputs outputs;
      int loaded = 0, stage_to_fill = 0, stage_to_read = 0;
      Index column = 0, next_column = 0;
      long long place = 0, next_place = 0;  // transposed
      auto find = [&](int p) {
        if (p * SLICES < steps) {
          next_column = column_of[p * indices.row];
          if constexpr (transposed) next_place = place_of[p * order.row] - first_place;
        }
      };
      find(0);
      auto load = [&] {
        if (loaded < steps) {
          const int p = loaded / SLICES, slice = loaded % SLICES;
          if (slice == 0) {
            column = next_column;
            place = next_place;
            find(p + 1);
          }
          operands.load(stages + stage_to_fill * Slice::SLICE_BYTES,
                        transposed ? place : first_block + p, column, slice * tile_k, dense);
          stage_to_fill = stage_to_fill + 1 == stage_count ? 0 : stage_to_fill + 1;
          ++loaded;
        }
        cp_async_commit();
      };
#pragma unroll 1
      for (int step = 0; step < stage_count - 1; ++step) load();
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        cp_async_wait<stage_count - 2>();
        __syncthreads();  // slice `step` has arrived, and slice `step - 1` is no longer read
        const unsigned char* stage = stages + stage_to_read * Slice::SLICE_BYTES;
        const int terms = Slice::WHOLE ? Slice::DEPTH : min(tile_k, bk - step % SLICES * tile_k);
        outputs.multiply(stage, stage + Slice::LEFT_BYTES, terms, load);
        stage_to_read = stage_to_read + 1 == stage_count ? 0 : stage_to_read + 1;
      }
      cp_async_wait<0>();
      __syncthreads();  // the slices are no longer read

      const TilePlace to(opaque(tile), problem, rows, batch);
      const long long top = to.block_row * bm + to.first_row;
      outputs.finish(
          stages, {Op(epilogue, batch, to.batch),
                   batch_ptr<Output>(out, batch, to.batch) + element_offset(out, top, to.first_col),
                   out.row, out.col, top, to.first_col, to.rows(), to.columns(problem)});
      __syncthreads();  // before the next tile's slices arrive
    }
  }
};

}  // namespace sparsegpu
