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
//   -DDENSE=rows|columns|bytes|strided   as in common/dense_slice.cuh
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
#include "common/block_row_tiles.cuh"
#include "common/dense_slice.cuh"
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
typedef DenseSlice<LAYOUT, TILE_K, 8, THREADS> Right;
constexpr int LEFT_PITCH = LEFT_BY_LINE ? LINE_PITCH<SLICE_BYTES> : K_PITCH<T, TILE_M>;
constexpr int LEFT_BYTES = (LEFT_BY_LINE ? TILE_M : TILE_K) * LEFT_PITCH;
constexpr int STAGE_BYTES = LEFT_BYTES + Right::BYTES;
constexpr int STRIP_PITCH = WARP_N + 8;  // of sixteen rows of outputs on their way out
static_assert(WARPS_M * WARPS_N * 16 * STRIP_PITCH * 4 <= STAGES * STAGE_BYTES, "strips fit");

// The operands of one tile of the output: left[m][t] and right[t][n], where t counts terms.
struct Operands {
  const T* block;          // data, at the tile's first row of block 0
  Right right;             // dense
  const INDEX* column_of;  // block column of every block
  const long long* order;  // TRANSPOSED: where a block lies, counted from block `order_base`
  long long order_base;
  long long column_step;
  long long first_block, terms;
  int block_elements, bm, rows;

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
      const long long t = start + threadIdx.x % 4 * PIECE;
      const T* from = t < terms ? block + in_data(t) : block;
      const int there = t < terms ? rows : 0;
      share_copies<THREADS, 4, TILE_M>([&](int piece, int m) {
        const T* line = m < there ? from + (long long)m * BK : block;
        cp_async<16>(left + m * LEFT_PITCH + piece * 16, line, m < there);
      });
    } else {
      const long long t = start + threadIdx.x % TILE_K;
      const T* from = t < terms ? block + in_data(t) : block;
      const int there = t < terms ? rows : 0;
      share_copies<THREADS, TILE_K, TILE_M>([&](int k, int m) {
        reinterpret_cast<T*>(left + m * LEFT_PITCH)[k] =
            m < there ? from[(long long)m * BK] : zero_of<T>();
      });
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
      share_copies<THREADS, ACROSS, TILE_K>([&](int x, int k) {
        const int m = x * STEP;
        const bool valid = start + k < terms && m < rows;
        const T* from = valid ? block + in_data(start + k) + m : block;
        unsigned char* to = left + m * M_BYTES + k * K_BYTES;
        if constexpr (DATA_PIECES)
          cp_async<16>(to, from, valid);
        else
          *reinterpret_cast<T*>(to) = valid ? *from : zero_of<T>();
      });
    }
  }

  // Bring the rows of dense that meet them.
  __device__ __forceinline__ void load_right(unsigned char* slice, long long start) const {
    right.bring(slice, int(min((long long)TILE_K, terms - start)),
                [&](int k) { return dense_row(start + k); });
  }
};

typedef WarpTile<A, WARP_M, WARP_N, WARPS_N> Outputs;

// Add the products of one slice: two steps of 32 bytes of k.
__device__ __forceinline__ void multiply(Outputs& outputs, const unsigned char* left,
                                         const unsigned char* right) {
  const Fragments<T, SixteenRows, LEFT_BY_LINE, LEFT_PITCH> rows(left, outputs.row);
  const Fragments<T, SixteenColumns, Right::BY_LINE, Right::PITCH> columns(right, outputs.col);
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

  // A thread block takes several tiles only where they are more than a grid may have.
  typedef Tile<TILE_M, TILE_N> Tile;
  const long long tiles = Tile::count(sizes);
  for (long long number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile(number, sizes);

    Operands operands;
    operands.rows = tile.rows;
    operands.right = {nullptr, dense.row, dense.col, tile.columns};
    operands.terms = 0;
    if (indptr.ptr) {
      const INDEX* starts =
          batch_ptr<const INDEX>(indptr, batch, tile.batch) + tile.block_row * indptr.row;
      operands.first_block = starts[0];
      operands.terms = (long long)(starts[indptr.row] - starts[0]) * BK;
      operands.column_of = batch_ptr<const INDEX>(indices, batch, tile.batch);
      operands.column_step = indices.row;
      operands.bm = sizes.bm;
      operands.block = batch_ptr<const T>(data, batch, tile.batch) +
                       (long long)tile.first_row * (TRANSPOSED ? 1 : BK);
      if constexpr (TRANSPOSED) {
        operands.order = batch_ptr<const long long>(order, batch, tile.batch);
        operands.order_base = batch_offset(order, batch, tile.batch);
      }
      operands.block_elements = sizes.bm * BK;
      operands.right.panel =
          batch_ptr<const T>(dense, batch, tile.batch) + tile.first_col * dense.col;
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

    const Finish<A, OUT> finish(epilogue, batch, tile.batch);
    OUT* out_matrix = batch_ptr<OUT>(out, batch, tile.batch);
    auto write = [&](int m, int n, A sum) {
      const long long row = tile.top + m, column = tile.first_col + n;
      out_matrix[element_offset(out, row, column)] = finish(sum, row, column);
    };
    finish_outputs(outputs, stages, tile.rows, tile.columns, out.row < out.col, write);
    __syncthreads();  // before the next tile's slices come
  }
}
