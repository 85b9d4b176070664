// BSR @ dense on tensor cores through mma.sync (8.0 and later): bfloat16, float16, int8, and
// float32 as TF32 where the caller allows it.
//
// The idea is that of bsr_addmm_simt.cu, to be read first: the blocks of a block row, side by
// side, are one matrix, and so are the rows of `dense` that meet them. Here its terms go through
// shared memory 64 bytes at a time (32 terms of 16-bit operands, 64 of int8, 16 of TF32), in a
// pipeline of STAGES such slices, and from there as fragments into the tensor cores. All three
// kinds have the same fragments when counted in bytes (ptx/mma.cuh), so the code counts in bytes.
//
// Any block size works: a slice may span several blocks, and what a tile holds beyond the block's
// rows, beyond N or beyond the last term is zero. So does any layout of `dense`:
//
//   -DDENSE=rows|columns|bytes|strided   (Layout, common/dense_tile_cp_async.cuh)
//
// And the matrix may be multiplied as its transpose, without forming it:
//
//   -DTRANSPOSED=0    block p of the pattern is number p of data, row by row
//   -DTRANSPOSED=1    it is number order[p] of data, column by column; the slice is stored by k
//                     (int8: transposed on the way, and stored by row)
//
// -DDATA_VECTORS=1 says that what is contiguous in a block (its rows, its columns) can be copied in
// 16-byte vectors, too; columns of int8 in words of 4 bytes.
//
// -DT, -DINDEX, -DOUT, -DEPILOGUE, -DACT as in bsr_addmm_simt.cu; -DBK columns of a block;
// -DTILE_M, -DTILE_N outputs of a thread block, shared by WARPS_M x WARPS_N warps; -DSTAGES.
#include "common/ceil_div.cuh"
#include "common/dense_tile_cp_async.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/output_matrix.cuh"
#include "common/row_tile_scheduler.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr int SIZE = sizeof(T);
constexpr int SLICE_BYTES = 64;             // of k
constexpr int TILE_K = SLICE_BYTES / SIZE;  // terms of a slice
constexpr int VECTOR = 16 / SIZE;           // elements of a 16-byte copy
constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int WARP_M = TILE_M / WARPS_M;
constexpr int WARP_N = TILE_N / WARPS_N;
// Thread blocks that the 65536 registers of a multiprocessor suffice for: 128 are enough for a
// thread with up to 64 sums. Elements that are copied one by one pass through registers, HELD of a
// thread, and each of them takes a second one for its place.
constexpr int SUMS = WARP_M * WARP_N / 32;
constexpr int HELD = !DATA_VECTORS && (SIZE == 1 || TRANSPOSED) ? TILE_M * TILE_K / THREADS : 0;
constexpr int REGISTERS = SUMS + 2 * HELD > 64 ? 256 : 128;
constexpr int RESIDENT = REGISTERS * THREADS < 65536 ? 65536 / (REGISTERS * THREADS) : 1;
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "a warp multiplies 16 x 16 outputs at a time");

// The two tiles of a slice; the host computes their size, too.
constexpr bool LEFT_BY_LINE = !TRANSPOSED || SIZE == 1;
typedef DenseTileCpAsync<T, Layout::DENSE, TILE_N, TILE_K, THREADS> Right;
typedef OperandTile<T, TILE_M, TILE_K, LEFT_BY_LINE> Left;
constexpr int LEFT_BYTES = Left::BYTES;
constexpr int STAGE_BYTES = LEFT_BYTES + Right::Tile::BYTES;
constexpr int STAGING_PITCH = WARP_N + 8;  // of sixteen rows of a warp's outputs
static_assert(WARPS_M * WARPS_N * 16 * STAGING_PITCH * 4 <= STAGES * STAGE_BYTES,
              "the staged outputs fit where the stages were");

// Whether every slice lies within one block.
constexpr bool WITHIN_BLOCKS = BK % TILE_K == 0;

// The operands of one tile of the output from the next slice on: left[m][k] and right[k][n], where
// k counts the slice's terms. Where it begins is term `first_term` of a block.
struct Operands {
  const T* data;           // the tile's first row in that block (TRANSPOSED: column in block 0)
  Right right;             // dense
  const INDEX* column_of;  // block columns, from that block on
  const long long* order;  // TRANSPOSED: which blocks of data they are
  long long column_step;
  const T *left_at, *right_at;  // WITHIN_BLOCKS: its column of the block (TRANSPOSED), row of dense
  int first_term, last_terms;   // last_terms: of the last slice
  int block_elements, bm, rows;

  // Term k's column of its block.
  __device__ __forceinline__ const T* left_of(int k) const {
    const int block = WITHIN_BLOCKS ? 0 : (first_term + k) / BK;
    const int term = first_term + k - block * BK;
    if constexpr (!TRANSPOSED) return data + (long long)block * block_elements + term;
    if constexpr (WITHIN_BLOCKS) return left_at + k * bm;
    return column_in(block) + term * bm;
  }
  __device__ __forceinline__ const T* column_in(int block) const {
    return data + order[block] * block_elements;
  }
  // The row of dense that term k meets.
  __device__ __forceinline__ const T* right_of(int k) const {
    const int block = WITHIN_BLOCKS ? 0 : (first_term + k) / BK;
    const int term = first_term + k - block * BK;
    return right.panel + right.down((long long)column_of[block * column_step] * BK + term);
  }

  // Prefetch where the next slice lies, an iteration before it is copied.
  __device__ __forceinline__ void find() {
    if constexpr (WITHIN_BLOCKS) {
      if constexpr (TRANSPOSED) left_at = column_in(0) + first_term * bm;
      right_at = right_of(0);
    }
  }

  // Start to copy the next slice, of `left` that are left.
  __device__ __forceinline__ void load(unsigned char* stage, int left) {
    const int here = WITHIN_BLOCKS || left > 1 ? TILE_K : last_terms;
    if constexpr (TRANSPOSED)
      load_columns(stage, here);
    else
      load_rows(stage, here);
    right.load(stage + LEFT_BYTES, here, [&](int y, int c) {
      if constexpr (WITHIN_BLOCKS) return right_at + right.down(y) + right.down(c);
      return right_of(y + c < here ? y + c : 0);
    });
    const int passed = (first_term + TILE_K) / BK;
    first_term += TILE_K - passed * BK;
    column_of += passed * column_step;
    if constexpr (TRANSPOSED)
      order += passed;
    else
      data += (long long)passed * block_elements;
    if (left > 1) find();
  }

  // TILE_M rows of the blocks ...
  __device__ __forceinline__ void load_rows(unsigned char* left, int here) const {
    constexpr int STEP = DATA_VECTORS ? VECTOR : 1;
    const int k = threadIdx.x % (TILE_K / STEP) * STEP;
    const T* from = k < here ? left_of(k) : data;
    const int there = k < here ? rows : 0;
    share_copies<THREADS, TILE_K / STEP, TILE_M>([&](int, int y, int c) {
      unsigned char* to = left + Left::offset(y + c, k);
      const T* line = from + (long long)y * BK + c * BK;
      if constexpr (DATA_VECTORS)
        cp_async<16>(to, line, y + c < there);
      else
        *reinterpret_cast<T*>(to) = y + c < there ? *line : zero_of<T>();
    });
  }

  // ... or TILE_K of their columns, as they lie: neighbouring threads take neighbouring rows.
  __device__ __forceinline__ void load_columns(unsigned char* left, int here) const {
    if constexpr (SIZE == 1 && DATA_VECTORS) {
      transpose_bytes<Left, TILE_M, TILE_K, THREADS>(left, [&](int k, int m) {
        return k < here && m < rows ? four_bytes(left_of(k) + m, 4) : 0;
      });
    } else if constexpr (SIZE == 1) {
      constexpr int PART = TILE_K / 2;  // all copies at once would take too many registers
#pragma unroll 1
      for (int first = 0; first < TILE_K; first += PART)
        share_copies<THREADS, TILE_M, PART>([&](int m, int y, int c) {
          const int k = first + y + c;
          *reinterpret_cast<T*>(left + Left::offset(m, k)) =
              k < here && m < rows ? left_of(k)[m] : zero_of<T>();
        });
    } else {
      constexpr int STEP = DATA_VECTORS ? VECTOR : 1;
      share_copies<THREADS, TILE_M / STEP, TILE_K>([&](int x, int y, int c) {
        const int m = x * STEP, k = y + c;
        const bool valid = k < here && m < rows;
        const T* from = left_of(k < here ? k : 0) + m;
        unsigned char* to = left + Left::offset(m, k);
        if constexpr (DATA_VECTORS)
          cp_async<16>(to, from, valid);
        else
          *reinterpret_cast<T*>(to) = valid ? *from : zero_of<T>();
      });
    }
  }
};

typedef WarpOutputs<A, WARP_M, WARP_N, WARPS_N> Outputs;

// Call write(m, n, sum) for the warp's outputs within rows x columns of the tile. They are staged
// in shared memory, sixteen rows at a time, so that neighbouring lanes write neighbouring outputs,
// and so that the code of the epilogue exists once.
template <typename Write>
__device__ __forceinline__ void finish_outputs(const Outputs& outputs, unsigned char* buffers,
                                               int rows, int columns, bool by_column, Write write) {
  A* staged = reinterpret_cast<A*>(buffers) + threadIdx.x / 32 * 16 * STAGING_PITCH;
#pragma unroll
  for (int i = 0; i < WARP_M / 16; ++i) {
    outputs.sixteen_rows(i, [&](int m, int n, A sum) { staged[m * STAGING_PITCH + n] = sum; });
    __syncwarp();
    const int top = outputs.row + 16 * i;
#pragma unroll 1
    for (int e = outputs.lane; e < 16 * WARP_N; e += 32) {
      const int m = by_column ? e % 16 : e / WARP_N;
      const int n = by_column ? e / 16 : e % WARP_N;
      if (top + m < rows && outputs.col + n < columns)
        write(top + m, outputs.col + n, staged[m * STAGING_PITCH + n]);
    }
    __syncwarp();
  }
}

// A thread block computes one tile. The operands are those of bsr_addmm_simt.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    bsr_addmm_sm80(const __grid_constant__ View out, const __grid_constant__ View indptr,
                   const __grid_constant__ View indices, const __grid_constant__ View order,
                   const __grid_constant__ View data, const __grid_constant__ View dense,
                   const __grid_constant__ Batch batch,
                   const __grid_constant__ BlockRowProblem problem,
                   const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  extern __shared__ __align__(128) unsigned char stages[];
  const BlockRowTile<TILE_M, TILE_N> tile(blockIdx.x, problem);

  Operands operands;
  operands.rows = tile.rows;
  operands.right = {nullptr, dense.row, dense.col, tile.columns};
  long long terms = 0;
  if (indptr.ptr) {
    const INDEX* starts = tile.starts<INDEX>(indptr, batch);
    const long long first = starts[0];
    terms = (starts[indptr.row] - first) * BK;
    operands.column_step = indices.row;
    operands.column_of = batch_ptr<const INDEX>(indices, batch, tile.batch) + first * indices.row;
    operands.bm = problem.bm;
    operands.block_elements = problem.bm * BK;
    operands.data = batch_ptr<const T>(data, batch, tile.batch) +
                    (long long)tile.first_row * (TRANSPOSED ? 1 : BK);
    if constexpr (TRANSPOSED) {
      operands.order = batch_ptr<const long long>(order, batch, tile.batch) + first;
      operands.data -= batch_offset(order, batch, tile.batch) * operands.block_elements;
    } else {
      operands.data += first * operands.block_elements;
    }
    operands.right.panel =
        batch_ptr<const T>(dense, batch, tile.batch) + tile.first_col * dense.col;
  }
  operands.first_term = 0;
  operands.last_terms = int((terms - 1) % TILE_K) + 1;
  if (terms > 0) operands.find();

  Outputs outputs;
  CpAsyncPipeline<STAGES, STAGE_BYTES> pipeline;
  int steps = int(ceil_div(terms, TILE_K));
  auto load = [&](int left) {
    if (left > 0) operands.load(stages + pipeline.stage, left);
    pipeline.advance();
  };
#pragma unroll 1
  for (int step = 0; step < STAGES - 1; ++step) load(steps - step);
#pragma unroll 1
  for (; steps > 0; --steps) {
    pipeline.wait();
    load(steps - (STAGES - 1));
    multiply_slice<Left, Right::Tile>(outputs, stages + pipeline.stage,
                                      stages + pipeline.stage + LEFT_BYTES);
  }
  pipeline.drain();

  const OutputMatrix<KernelEpilogue<A, OUT>> matrix(out, batch, epilogue, tile.batch);
  auto write = [&](int m, int n, A sum) { matrix.store(sum, tile.top + m, tile.first_col + n); };
  finish_outputs(outputs, stages, tile.rows, tile.columns, out.row < out.col, write);
}
