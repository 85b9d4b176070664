// BSR @ dense at full precision: what bsr_addmm_f32.cu and bsr_addmm_f64.cu share.
//
// The idea is that of bsr_addmm_simt.cu, to be read first. Here the terms of a block row come in
// slices of TILE_K columns of one block (the last slice of a block may have fewer), so that a slice
// has one place in data and one in dense. STAGES slices are under way at once to shared memory, as
// left[m][k] and right[k][n], which the kernel multiplies.
//
// Copies are asynchronous for any block size and layout:
//
//   -DDATA, -DDENSE=pieces   rows of whole 16-byte pieces
//                   rows     element by element, neighbouring threads along a row
//                   columns  element by element, neighbouring threads along a column
//
// -DTRANSPOSED=1 multiplies the transpose of a matrix where it lies: the pattern is the sorted one
// of the transpose, and its block p is number order[p] of data, column by column (-DDATA=columns).
//
// The block rows are taken in the order `rows`, those with most blocks first.
//
// -DT, -DINDEX, -DOUT, -DEPILOGUE, -DACT as in bsr_addmm_simt.cu; -DBM, -DBK the block; -DTILE_M,
// -DTILE_N outputs of a thread block, shared by WARPS_M x WARPS_N warps; -DTILE_K, -DSTAGES;
// -DRESIDENT thread blocks that a multiprocessor is to hold.
#pragma once

#include "common/types.cuh"
#include "common/view.cuh"
#include "common/kernel_epilogue.cuh"
#include "ptx/cp_async.cuh"

namespace sparsegpu {

constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int WARP_M = TILE_M / WARPS_M;
constexpr int WARP_N = TILE_N / WARPS_N;
static_assert(TILE_M % WARPS_M == 0 && TILE_N % WARPS_N == 0, "warps share the tile");

constexpr int SIZE = sizeof(T);
constexpr int PARTS = (BM + TILE_M - 1) / TILE_M;   // tiles that share a block row
constexpr int SLICES = (BK + TILE_K - 1) / TILE_K;  // of a block
constexpr bool WHOLE_ROWS = BM % TILE_M == 0;

enum class CopyLayout { pieces, rows, columns };
static_assert(TRANSPOSED == (CopyLayout::DATA == CopyLayout::columns), "as the blocks lie");

struct Sizes {
  long long batches, block_rows, columns;
  long long group;  // panels of TILE_N columns that are taken together
};

// Where a tile of the output lies. Thread blocks that run together share a group of panels of
// dense, and within it take the block rows with most blocks first: so all finish together.
struct Place {
  long long batch, block_row, first_col;
  int first_row;  // within the block row

  __device__ __forceinline__ Place(long long tile, const Sizes& sizes, const View& rows,
                                   const Batch& shape) {
    const long long row_tiles = sizes.batches * sizes.block_rows * PARTS;
    const long long panels = (sizes.columns + TILE_N - 1) / TILE_N;
    // The first group is the smaller one, so that what runs last is many tiles, sorted.
    const long long lacking = (sizes.group - panels % sizes.group) % sizes.group;
    const long long group = (tile / row_tiles + lacking) / sizes.group;
    const long long first_panel = max(group * sizes.group - lacking, 0LL);
    const long long together = sizes.group - (group == 0 ? lacking : 0);
    const long long within = tile - first_panel * row_tiles;
    long long x = within / together;
    first_col = (first_panel + within - x * together) * TILE_N;
    first_row = int(x % PARTS) * TILE_M;
    x /= PARTS;
    block_row = x / sizes.batches;
    batch = x - block_row * sizes.batches;
    if (rows.ptr) block_row = batch_ptr<const INDEX>(rows, shape, batch)[block_row * rows.row];
  }
  __device__ __forceinline__ int rows() const { return min(TILE_M, BM - first_row); }
  __device__ __forceinline__ int columns(const Sizes& sizes) const {
    return int(min((long long)TILE_N, sizes.columns - first_col));
  }
};

// The same number, of which the compiler no longer knows that it has met it: what follows from it
// is worked out again, and not kept in registers meanwhile.
__device__ __forceinline__ long long forget(long long x) {
  asm volatile("" : "+l"(x));
  return x;
}

// A thread's share of WIDTH x HEIGHT copies: (x, y) first, and then ACROSS and DOWN further.
// ACROSS neighbouring threads, a power of two, take neighbouring x.
template <int ACROSS, int WIDTH, int HEIGHT>
struct Share {
  static constexpr int DOWN = THREADS / ACROSS;
  static_assert(THREADS % ACROSS == 0, "whole rows of threads");

  static __device__ __forceinline__ int x() { return threadIdx.x % ACROSS; }
  static __device__ __forceinline__ int y() { return threadIdx.x / ACROSS; }

  // Call copy(dx, dy) for every x() + dx, y() + dy.
  template <typename Copy>
  static __device__ __forceinline__ void each(Copy copy) {
#pragma unroll
    for (int dx = 0; dx < WIDTH; dx += ACROSS)
#pragma unroll
      for (int dy = 0; dy < HEIGHT; dy += DOWN)
        if ((WIDTH % ACROSS == 0 || x() + dx < WIDTH) && (HEIGHT % DOWN == 0 || y() + dy < HEIGHT))
          copy(dx, dy);
  }
};

constexpr int power_of_two_below(int n) {
  int p = 1;
  while (2 * p <= n) p *= 2;
  return p;
}

// The copies of a ROWS x COLUMNS piece of an operand to shared memory, whose rows are PITCH bytes
// apart: where this thread's first one is, and the steps to the others, as elements. All go through
// L1: pieces of 16 bytes that go past it were measured to cost the L2 half as many bytes again.
template <CopyLayout LAYOUT, int ROWS, int COLUMNS, int PITCH>
struct Copies {
  static constexpr bool BY_COLUMN = LAYOUT == CopyLayout::columns;
  static constexpr int LENGTH = LAYOUT == CopyLayout::pieces ? 16 / SIZE : 1;  // of a copy
  static constexpr int WIDTH = (BY_COLUMN ? ROWS : COLUMNS) / LENGTH;
  // A column is copied eight elements at a time, so that four of them meet no bank twice.
  static constexpr int ACROSS =
      BY_COLUMN ? 8 : power_of_two_below(WIDTH < THREADS ? WIDTH : THREADS);
  typedef Share<ACROSS, WIDTH, BY_COLUMN ? COLUMNS : ROWS> Mine;

  static __device__ __forceinline__ int row() { return BY_COLUMN ? Mine::x() : Mine::y(); }
  static __device__ __forceinline__ int column() {
    return BY_COLUMN ? Mine::y() : Mine::x() * LENGTH;
  }

  // Copy element (row() + r, column() + c), which `from(r, c)` points to, if wanted(r, c); the
  // element is zero unless exists(r, c).
  template <typename From, typename Wanted, typename Exists>
  static __device__ __forceinline__ void run(unsigned char* tile, From from, Wanted wanted,
                                             Exists exists) {
    unsigned char* to = tile + row() * PITCH + column() * SIZE;
    Mine::each([&](int dx, int dy) {
      const int r = BY_COLUMN ? dx : dy, c = BY_COLUMN ? dy : dx * LENGTH;
      if (wanted(r, c))
        cp_async<LENGTH * SIZE, true>(to + r * PITCH + c * SIZE, from(r, c), exists(r, c));
    });
  }
};

// The operands of one tile of the output. What a tile holds beyond `rows` or `columns` is not
// written, so that anything may stand there; what a slice holds beyond its block must be zero.
template <typename Outputs>
struct Operands {
  static constexpr int DEPTH = Outputs::DEPTH;
  static constexpr bool WHOLE = BK % DEPTH == 0;
  static constexpr bool TURNED = Outputs::LEFT_BY_TERM;  // left[k][m], not left[m][k]
  static constexpr CopyLayout LEFT_LAYOUT = !TURNED ? CopyLayout::DATA
                                            : CopyLayout::DATA == CopyLayout::columns
                                                ? CopyLayout::rows
                                                : CopyLayout::columns;
  typedef Copies<LEFT_LAYOUT, TURNED ? DEPTH : TILE_M, TURNED ? TILE_M : DEPTH, Outputs::LEFT_PITCH>
      Left;
  typedef Copies<CopyLayout::DENSE, DEPTH, TILE_N, Outputs::RIGHT_PITCH> Right;
  static constexpr int LEFT_BYTES = (TURNED ? TILE_K : TILE_M) * Outputs::LEFT_PITCH;
  static constexpr int BYTES = LEFT_BYTES + TILE_K * Outputs::RIGHT_PITCH;  // of a slice
  static constexpr int ROW_STEP = TRANSPOSED ? 1 : BK;                      // in a block
  static constexpr int COLUMN_STEP = TRANSPOSED ? BM : 1;

  const T* block;  // where this thread's first copy of place 0 of data starts ...
  const T* panel;  // ... and of dense
  int rows, columns;

  __device__ __forceinline__ Operands(const T* block, const T* panel, int rows, int columns,
                                      const View& dense)
      : block(block + first_m() * ROW_STEP + first_k() * COLUMN_STEP),
        panel(panel + Right::row() * dense.row + Right::column() * dense.col),
        rows(rows - first_m()),
        columns(columns - Right::column()) {}

  // Bring TILE_K columns, from column `first` on, of the block at place p of data, and the rows of
  // dense that they meet: those of block column c.
  __device__ __forceinline__ void load(unsigned char* stage, long long p, INDEX c, int first,
                                       const View& dense) const {
    const T* left = block + p * (BM * BK) + first * COLUMN_STEP;
    const T* right = panel + ((long long)c * BK + first) * dense.row;
    const int left_terms = BK - first - first_k(), right_terms = BK - first - Right::row();
    Left::run(
        stage,
        [&](int r, int c) { return left + m_of(r, c) * ROW_STEP + k_of(r, c) * COLUMN_STEP; },
        [&](int r, int c) { return WHOLE_ROWS || m_of(r, c) < rows; },
        [&](int r, int c) { return WHOLE || k_of(r, c) < left_terms; });
    Right::run(
        stage + LEFT_BYTES, [&](int k, int n) { return right + k * dense.row + n * dense.col; },
        [&](int, int n) { return n < columns; },
        [&](int k, int) { return WHOLE || k < right_terms; });
  }

 private:
  static __device__ __forceinline__ int m_of(int r, int c) { return TURNED ? c : r; }
  static __device__ __forceinline__ int k_of(int r, int c) { return TURNED ? r : c; }
  static __device__ __forceinline__ int first_m() { return m_of(Left::row(), Left::column()); }
  static __device__ __forceinline__ int first_k() { return k_of(Left::row(), Left::column()); }
};

// Where the outputs of a tile go.
struct Destination {
  const KernelEpilogue<T, OUT> finish;
  OUT* out;  // the tile's first element
  long long row, col, top, left;
  int rows, columns;  // of the tile
  static constexpr int PIECE = 16 / SIZE;

  __device__ __forceinline__ bool by_column() const { return row < col; }

  // Whether PIECE neighbouring outputs of a row may be written at once.
  __device__ __forceinline__ bool in_pieces() const {
    const long long bits = reinterpret_cast<long long>(out) | row * (long long)sizeof(OUT);
    return col == 1 && bits % sizeof(Piece) == 0;
  }
  __device__ __forceinline__ void write(int m, int n, T sum) const {
    out[m * row + n * col] = finish(sum, top + m, left + n);
  }
  __device__ __forceinline__ void write_piece(int m, int n, const T* sums) const {
    Piece piece;
#pragma unroll
    for (int i = 0; i < PIECE; ++i) piece.outputs[i] = finish(sums[i], top + m, left + n + i);
    *reinterpret_cast<Piece*>(out + m * row + n) = piece;
  }

 private:
  struct alignas(PIECE * sizeof(OUT)) Piece {
    OUT outputs[PIECE];
  };
};

// Rows of outputs on their way out, ROWS x WARP_N at a time: they pass through shared memory, so
// that neighbouring lanes write neighbouring outputs, and so that the code of the epilogue stands
// there once.
template <int ROWS>
struct Strip {
  static constexpr int PIECE = Destination::PIECE;
  static constexpr int PITCH = WARP_N + PIECE;
  static constexpr int BYTES = ROWS * PITCH * SIZE;
  T* at;

  __device__ __forceinline__ explicit Strip(unsigned char* strips)
      : at(reinterpret_cast<T*>(strips + threadIdx.x / 32 * BYTES)) {}

  // Write all of it that lies within the tile, where the strip starts at (row, col).
  __device__ __forceinline__ void write_all(int row, int col, const Destination& to) const {
    __syncwarp();
    if (to.in_pieces() && col + WARP_N <= to.columns) {
#pragma unroll 1
      for (int e = threadIdx.x % 32; e < ROWS * (WARP_N / PIECE); e += 32) {
        const int m = e / (WARP_N / PIECE), n = e % (WARP_N / PIECE) * PIECE;
        if (row + m < to.rows) to.write_piece(row + m, col + n, at + m * PITCH + n);
      }
    } else {
#pragma unroll 1
      for (int e = threadIdx.x % 32; e < ROWS * WARP_N; e += 32) {
        const int m = to.by_column() ? e % ROWS : e / WARP_N;
        const int n = to.by_column() ? e / ROWS : e % WARP_N;
        if (row + m < to.rows && col + n < to.columns)
          to.write(row + m, col + n, at[m * PITCH + n]);
      }
    }
    __syncwarp();
  }
};

// What a thread block does: kernels of this kind differ in Outputs alone, which multiply slices.
template <typename Outputs>
__device__ __forceinline__ void multiply_block_rows(unsigned char* stages, const View& out,
                                                    const View& rows, const View& indptr,
                                                    const View& indices, const View& order,
                                                    const View& data, const View& dense,
                                                    const Batch& batch, const Sizes& sizes,
                                                    const KernelEpilogueArgs<T>& epilogue) {
  typedef Operands<Outputs> Slice;
  const long long row_tiles = sizes.batches * sizes.block_rows * PARTS;
  const long long column_tiles = (sizes.columns + TILE_N - 1) / TILE_N;

  // A thread block takes several tiles only where they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < row_tiles * column_tiles; tile += gridDim.x) {
    const Place at(tile, sizes, rows, batch);
    const INDEX* column_of = nullptr;  // of the block row's blocks
    const long long* place_of = nullptr;
    long long first_block = 0, first_place = 0;
    int steps = 0;
    if (indptr.ptr) {
      const INDEX* starts =
          batch_ptr<const INDEX>(indptr, batch, at.batch) + at.block_row * indptr.row;
      first_block = starts[0];
      steps = int(starts[indptr.row] - first_block) * SLICES;
      column_of = batch_ptr<const INDEX>(indices, batch, at.batch) + first_block * indices.row;
      if constexpr (TRANSPOSED) {
        place_of = batch_ptr<const long long>(order, batch, at.batch) + first_block * order.row;
        first_place = batch_offset(order, batch, at.batch);
      }
    }
    const Slice operands(batch_ptr<const T>(data, batch, at.batch) + at.first_row * Slice::ROW_STEP,
                         batch_ptr<const T>(dense, batch, at.batch) + at.first_col * dense.col,
                         at.rows(), at.columns(sizes), dense);

    // STAGES - 1 slices are under way while one is multiplied. Each step commits one group of
    // copies, an empty one at the end, so that the count of groups to wait for stays the same.
    // Where a block is, is read a block ahead.
    Outputs outputs;
    int loaded = 0, stage_to_fill = 0, stage_to_read = 0;
    INDEX column = 0, next_column = 0;
    long long place = 0, next_place = 0;  // TRANSPOSED
    auto find = [&](int p) {
      if (p * SLICES < steps) {
        next_column = column_of[p * indices.row];
        if constexpr (TRANSPOSED) next_place = place_of[p * order.row] - first_place;
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
        operands.load(stages + stage_to_fill * Slice::BYTES, TRANSPOSED ? place : first_block + p,
                      column, slice * TILE_K, dense);
        stage_to_fill = stage_to_fill + 1 == STAGES ? 0 : stage_to_fill + 1;
        ++loaded;
      }
      cp_async_commit();
    };
#pragma unroll 1
    for (int step = 0; step < STAGES - 1; ++step) load();
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // slice `step` is here, and slice `step - 1` is no longer read
      const unsigned char* stage = stages + stage_to_read * Slice::BYTES;
      const int terms = Slice::WHOLE ? Slice::DEPTH : min(TILE_K, BK - step % SLICES * TILE_K);
      outputs.multiply(stage, stage + Slice::LEFT_BYTES, terms, load);
      stage_to_read = stage_to_read + 1 == STAGES ? 0 : stage_to_read + 1;
    }
    cp_async_wait<0>();
    __syncthreads();  // nobody reads the slices any longer

    const Place to(forget(tile), sizes, rows, batch);
    const long long top = to.block_row * BM + to.first_row;
    outputs.finish(stages,
                   {KernelEpilogue<T, OUT>(epilogue, batch, to.batch),
                    batch_ptr<OUT>(out, batch, to.batch) + element_offset(out, top, to.first_col),
                    out.row, out.col, top, to.first_col, to.rows(), to.columns(sizes)});
    __syncthreads();  // before the next tile's slices come
  }
}

}  // namespace sparsegpu
