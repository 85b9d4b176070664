// BSR @ dense on tensor cores through mma.sync (8.0 and later): bfloat16, float16, int8, and
// float32 as TF32 where the caller allows it.
//
// The idea is that of bsr_addmm_simt.cu, to be read first: the blocks of a block row, side by
// side, are one matrix, and so are the rows of `dense` that meet them. Here its terms go through
// shared memory 64 bytes at a time (32 terms of 16-bit operands, 64 of int8, 16 of TF32), STAGES
// such slices under way at once, and from there as fragments into the tensor cores. All three
// kinds have the same fragments when counted in bytes (ptx/mma.cuh), so the code counts in bytes.
//
// Any block size works: a slice may span several blocks, and what a tile holds beyond the block's
// rows, beyond N or beyond the last term is zero. So does any layout of `dense`:
//
//   -DDENSE=rows      rows of 16-byte pieces; the slice is kept as it is, k by k
//   -DDENSE=columns   columns of 16-byte pieces; kept column by column
//   -DDENSE=bytes     int8 rows: 4 x 4 bytes at a time are transposed on their way to columns
//   -DDENSE=strided   element by element, kept column by column
//
// And the blocks may be those of the transpose, where they lie:
//
//   -DTRANSPOSED=0    block p of the pattern is number p of data, row by row
//   -DTRANSPOSED=1    it is number order[p] of data, column by column; the slice is kept k by k
//                     (int8: transposed on its way to rows)
//
// -DDATA_PIECES=1 says that what is contiguous in a block (its rows, its columns) is 16-byte
// pieces, too; of int8 columns, 4-byte pieces.
//
// -DT, -DINDEX, -DOUT, -DEPILOGUE, -DACT as in bsr_addmm_simt.cu; -DBK columns of a block;
// -DTILE_M, -DTILE_N outputs of a thread block, shared by WARPS_M x WARPS_N warps; -DSTAGES.
#include "common/epilogue.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp_tile.cuh"
#include "ptx/cp_async.cuh"

typedef Acc<T>::type A;

constexpr Layout LAYOUT = Layout::DENSE;
constexpr int SIZE = sizeof(T);
constexpr int SLICE_BYTES = 64;             // of k
constexpr int TILE_K = SLICE_BYTES / SIZE;  // terms of a slice
constexpr int PIECE = 16 / SIZE;            // elements of a 16-byte copy
constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int WARP_M = TILE_M / WARPS_M;
constexpr int WARP_N = TILE_N / WARPS_N;
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "a warp multiplies 16 x 16 outputs at a time");

// The two tiles of a slice (common/warp_tile.cuh); runtime/config.py knows their size, too.
constexpr bool LEFT_BY_LINE = !TRANSPOSED || SIZE == 1;
constexpr bool RIGHT_BY_LINE = LAYOUT != Layout::rows;
constexpr int LEFT_PITCH = LEFT_BY_LINE ? LINE_PITCH<SLICE_BYTES> : K_PITCH<T, TILE_M>;
constexpr int RIGHT_PITCH = RIGHT_BY_LINE ? LINE_PITCH<SLICE_BYTES> : K_PITCH<T, TILE_N>;
constexpr int LEFT_BYTES = (LEFT_BY_LINE ? TILE_M : TILE_K) * LEFT_PITCH;
constexpr int RIGHT_BYTES = (RIGHT_BY_LINE ? TILE_N : TILE_K) * RIGHT_PITCH;
constexpr int STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES;
constexpr int STRIP_PITCH = WARP_N + 8;  // of sixteen rows of outputs on their way out
static_assert(WARPS_M * WARPS_N * 16 * STRIP_PITCH * 4 <= STAGES * STAGE_BYTES, "strips fit");

struct Sizes {
  long long batches, block_rows, columns;
  int bm, bk;
};

// The operands of one tile of the output: left[m][t] and right[t][n], where t counts terms.
struct Operands {
  const T* block;          // data, at the tile's first row of block 0
  const T* panel;          // dense, at the tile's first column
  const INDEX* column_of;  // block column of every block
  const long long* order;  // TRANSPOSED: where a block lies, counted from block `order_base`
  long long order_base;
  long long column_step;
  long long row, col;  // strides of dense
  long long first_block, terms;
  int block_elements, bm, rows, columns;

  // Where term t's column of the blocks starts in `block`.
  __device__ __forceinline__ long long in_data(long long t) const {
    const long long p = first_block + t / BK;
    if constexpr (TRANSPOSED)
      return (order[p] - order_base) * block_elements + t % BK * bm;
    else
      return p * block_elements + t % BK;
  }

  // The row of dense that term t meets.
  __device__ __forceinline__ long long dense_row(long long t) const {
    return (long long)column_of[(first_block + t / BK) * column_step] * BK + t % BK;
  }

  // Bring terms start .. start + TILE_K of the blocks: TILE_M rows, or TILE_K columns as they lie.
  __device__ __forceinline__ void load_left(unsigned char* left, long long start) const {
    if constexpr (TRANSPOSED) {
      load_left_columns(left, start);
    } else if constexpr (DATA_PIECES) {
      const int piece = threadIdx.x % 4;
      const long long t = start + piece * PIECE;
      const long long at = in_data(t);
      for (int m = threadIdx.x / 4; m < TILE_M; m += THREADS / 4) {
        const bool valid = t < terms && m < rows;
        const T* from = valid ? block + at + (long long)m * BK : block;
        cp_async<16>(left + m * LEFT_PITCH + piece * 16, from, valid);
      }
    } else {
      const int k = threadIdx.x % TILE_K;
      const long long t = start + k;
      const long long at = in_data(t);
      for (int m = threadIdx.x / TILE_K; m < TILE_M; m += THREADS / TILE_K) {
        const bool valid = t < terms && m < rows;
        reinterpret_cast<T*>(left + m * LEFT_PITCH)[k] =
            valid ? block[at + (long long)m * BK] : zero_of<T>();
      }
    }
  }

  // The same from blocks that lie column by column: neighbouring threads take neighbouring rows.
  __device__ __forceinline__ void load_left_columns(unsigned char* left, long long start) const {
    if constexpr (SIZE == 1 && DATA_PIECES) {
      transpose_bytes<TILE_M, TILE_K, 8, THREADS, LEFT_PITCH>(left, [&](int k, int m) {
        const bool valid = start + k < terms && m < rows;
        return valid ? four_bytes(block + in_data(start + k) + m, 4) : 0;
      });
    } else {
      constexpr int STEP = DATA_PIECES ? PIECE : 1, ACROSS = TILE_M / STEP;
      constexpr int M_BYTES = LEFT_BY_LINE ? LEFT_PITCH : SIZE;
      constexpr int K_BYTES = LEFT_BY_LINE ? SIZE : LEFT_PITCH;
      const int m = threadIdx.x % ACROSS * STEP;
      for (int k = threadIdx.x / ACROSS; k < TILE_K; k += THREADS / ACROSS) {
        const bool valid = start + k < terms && m < rows;
        const T* from = valid ? block + in_data(start + k) + m : block;
        unsigned char* to = left + m * M_BYTES + k * K_BYTES;
        if constexpr (DATA_PIECES)
          cp_async<16>(to, from, valid);
        else
          *reinterpret_cast<T*>(to) = valid ? *from : zero_of<T>();
      }
    }
  }

  // Bring the rows of dense that meet them: TILE_K rows (Layout::rows) or TILE_N columns.
  __device__ __forceinline__ void load_right(unsigned char* right, long long start) const {
    if constexpr (LAYOUT == Layout::rows) {
      constexpr int PIECES = TILE_N / PIECE;
      const int n = threadIdx.x % PIECES * PIECE;
      const int bytes = min(max(columns - n, 0) * SIZE, 16);
      for (int k = threadIdx.x / PIECES; k < TILE_K; k += THREADS / PIECES) {
        const long long t = start + k;
        const bool valid = t < terms && bytes > 0;
        const T* from = valid ? panel + dense_row(t) * row + n : panel;
        cp_async_partial<16>(right + k * RIGHT_PITCH + n * SIZE, from, valid ? bytes : 0);
      }
    } else if constexpr (LAYOUT == Layout::columns) {
      const int piece = threadIdx.x % 4;
      const long long t = start + piece * PIECE;
      const long long k = t < terms ? dense_row(t) : 0;
      for (int n = threadIdx.x / 4; n < TILE_N; n += THREADS / 4) {
        const bool valid = t < terms && n < columns;
        cp_async<16>(right + n * RIGHT_PITCH + piece * 16, valid ? panel + k + n * col : panel,
                     valid);
      }
    } else if constexpr (LAYOUT == Layout::bytes) {
      transpose_bytes<TILE_N, TILE_K, 8, THREADS, RIGHT_PITCH>(right, [&](int k, int n) {
        const long long t = start + k;
        return t < terms ? four_bytes(panel + dense_row(t) * row + n, columns - n) : 0;
      });
    } else {
      const bool by_column = row < col;
      for (int e = threadIdx.x; e < TILE_K * TILE_N; e += THREADS) {
        const int k = by_column ? e % TILE_K : e / TILE_N;
        const int n = by_column ? e / TILE_K : e % TILE_N;
        const long long t = start + k;
        reinterpret_cast<T*>(right + n * RIGHT_PITCH)[k] =
            t < terms && n < columns ? panel[dense_row(t) * row + n * col] : zero_of<T>();
      }
    }
  }
};

typedef WarpTile<A, WARP_M, WARP_N, WARPS_N> Outputs;

// Add the products of one slice: two steps of 32 bytes of k.
__device__ __forceinline__ void multiply(Outputs& outputs, const unsigned char* left,
                                         const unsigned char* right) {
  const Fragments<T, SixteenRows, LEFT_BY_LINE, LEFT_PITCH> rows(left, outputs.row);
  const Fragments<T, SixteenColumns, RIGHT_BY_LINE, RIGHT_PITCH> columns(right, outputs.col);
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    unsigned a[WARP_M / 16][4];
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) rows.load(a[i], 16 * i, 2 * step);
#pragma unroll
    for (int j = 0; j < WARP_N / 16; ++j) {
      unsigned b[4];
      columns.load(b, 16 * j, 2 * step);
      const unsigned first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
#pragma unroll
      for (int i = 0; i < WARP_M / 16; ++i) {
        mma<T>(outputs.sum[i][2 * j], a[i], first);
        mma<T>(outputs.sum[i][2 * j + 1], a[i], second);
      }
    }
  }
}

// Call write(m, n, sum) for the warp's outputs within rows x columns of the tile. They pass
// through `strips` of shared memory, sixteen rows at a time, so that neighbouring lanes write
// neighbouring outputs, and so that the code of the epilogue stands there once.
template <typename Write>
__device__ __forceinline__ void finish_outputs(const Outputs& outputs, unsigned char* strips,
                                               int rows, int columns, bool columns_apart,
                                               Write write) {
  A* strip = reinterpret_cast<A*>(strips) + threadIdx.x / 32 * 16 * STRIP_PITCH;
#pragma unroll
  for (int i = 0; i < WARP_M / 16; ++i) {
    outputs.sixteen_rows(i, [&](int m, int n, A sum) { strip[m * STRIP_PITCH + n] = sum; });
    __syncwarp();
    const int top = outputs.row + 16 * i;
#pragma unroll 1
    for (int e = outputs.lane; e < 16 * WARP_N; e += 32) {
      const int m = columns_apart ? e % 16 : e / WARP_N;
      const int n = columns_apart ? e / 16 : e % WARP_N;
      if (top + m < rows && outputs.col + n < columns)
        write(top + m, outputs.col + n, strip[m * STRIP_PITCH + n]);
    }
    __syncwarp();
  }
}

// The operands are those of bsr_addmm_simt.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_addmm_sm80(const __grid_constant__ View out, const __grid_constant__ View indptr,
                   const __grid_constant__ View indices, const __grid_constant__ View order,
                   const __grid_constant__ View data, const __grid_constant__ View dense,
                   const __grid_constant__ Batch batch, const __grid_constant__ Sizes sizes,
                   const __grid_constant__ Epilogue<A> epilogue) {
  extern __shared__ __align__(16) unsigned char stages[];

  const int slices = (sizes.bm + TILE_M - 1) / TILE_M;
  const long long row_tiles = sizes.batches * sizes.block_rows * slices;
  const long long column_tiles = (sizes.columns + TILE_N - 1) / TILE_N;

  // A thread block takes several tiles only where they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < row_tiles * column_tiles; tile += gridDim.x) {
    const long long x = tile % row_tiles;
    const long long first_col = tile / row_tiles * TILE_N;
    const int first_row = int(x % slices) * TILE_M;  // within the block row
    const long long block_row = x / slices % sizes.block_rows;
    const long long b = x / slices / sizes.block_rows;

    Operands operands;
    operands.rows = min(TILE_M, sizes.bm - first_row);
    operands.columns = int(min((long long)TILE_N, sizes.columns - first_col));
    operands.terms = 0;
    if (indptr.ptr) {
      const INDEX* starts = batch_ptr<const INDEX>(indptr, batch, b) + block_row * indptr.row;
      operands.first_block = starts[0];
      operands.terms = (long long)(starts[indptr.row] - starts[0]) * BK;
      operands.column_of = batch_ptr<const INDEX>(indices, batch, b);
      operands.column_step = indices.row;
      operands.bm = sizes.bm;
      operands.block =
          batch_ptr<const T>(data, batch, b) + (long long)first_row * (TRANSPOSED ? 1 : BK);
      if constexpr (TRANSPOSED) {
        operands.order = batch_ptr<const long long>(order, batch, b);
        operands.order_base = batch_offset(order, batch, b);
      }
      operands.block_elements = sizes.bm * BK;
      operands.panel = batch_ptr<const T>(dense, batch, b) + first_col * dense.col;
      operands.row = dense.row;
      operands.col = dense.col;
    }

    // STAGES - 1 slices are under way while one is multiplied. Each step commits one group of
    // copies, an empty one at the end, so that the count of groups to wait for stays the same.
    Outputs outputs;
    const int steps = int((operands.terms + TILE_K - 1) / TILE_K);
    auto load = [&](int step) {
      if (step < steps) {
        unsigned char* stage = stages + step % STAGES * STAGE_BYTES;
        operands.load_left(stage, (long long)step * TILE_K);
        operands.load_right(stage + LEFT_BYTES, (long long)step * TILE_K);
      }
      cp_async_commit();
    };
    for (int step = 0; step < STAGES - 1; ++step) load(step);
    for (int step = 0; step < steps; ++step) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // slice `step` is here, and slice `step - 1` is no longer read
      load(step + STAGES - 1);
      const unsigned char* stage = stages + step % STAGES * STAGE_BYTES;
      multiply(outputs, stage, stage + LEFT_BYTES);
    }
    cp_async_wait<0>();
    __syncthreads();  // nobody reads the slices any longer

    const Finish<A, OUT> finish(epilogue, batch, b);
    OUT* out_matrix = batch_ptr<OUT>(out, batch, b);
    const long long top = block_row * sizes.bm + first_row;
    auto write = [&](int m, int n, A sum) {
      out_matrix[element_offset(out, top + m, first_col + n)] = finish(sum, top + m, first_col + n);
    };
    finish_outputs(outputs, stages, operands.rows, operands.columns, out.row < out.col, write);
    __syncthreads();  // before the next tile's slices come
  }
}
