// 2:4 @ dense on sparse tensor cores through mma.sp (8.0 and later; e4m3 from 8.9): bfloat16,
// float16, int8, e4m3, and float32 (1:2) as TF32 where the caller allows it.
//
// An mma.sp takes 32 bytes of a packed row and the 64 bytes of a dense column that they were
// chosen from (ptx/mma_sp.cuh); counted in bytes the fragments of all dtypes are the same. A slice
// is two such steps: 64 bytes of each packed row and 128 of each column, copied to shared memory by
// cp.async, in a pipeline of STAGES slices. Metadata is loaded straight to registers: in CUTLASS's
// order (common/semi_structured.cuh) the word of lane i of a warp is the i-th of 32 consecutive
// words, for 32 rows of 16-bit metadata (two mma.sp, told apart by the selector) or for 16 rows of
// 32-bit metadata.
//
// Any N and any layout of `dense`; what a tile holds beyond M or N is zero.
//
//   -DDENSE=rows|columns|strided   (Layout, common/dense_tile_cp_async.cuh); rows have elements of
//                                  16 or 32 bits
//   -DT dtype of the operands; -DOUT, -DEPILOGUE, -DACT (common/kernel_epilogue.cuh);
//   -DTILE_M, -DTILE_N outputs of a thread block, shared by its four warps; -DSTAGES
#include "common/ceil_div.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/sparse_mma_tile.cuh"

using namespace sparsegpu;

typedef SparseMmaTile<T, Layout::DENSE, TILE_M, TILE_N, STAGES> Tile;
typedef KernelEpilogue<Tile::A, OUT> Op;

// The operands of one tile of the output, from the next slice on.
struct Operands {
  const T* packed;    // this thread's first vector
  const u32* meta;    // of this lane and its warp, as words: 32 a step and Tile::META_ROWS rows
  Tile::Right right;  // dense
  long long packed_pitch;  // elements of a packed row
  long long meta_pitch;    // words of a step
  int rows;                // of the tile, within the matrix

  // Copy the packed values of a slice, and the rows of dense that they were chosen from.
  __device__ __forceinline__ void load(unsigned char* stage, int left) {
    const bool inside = int(threadIdx.x % 4 / 2) < left;  // a step is two vectors
    Tile::load_packed(stage, packed, packed_pitch, inside ? rows : 0);
    right.load(stage + Tile::LEFT_BYTES, min(left, Tile::MMA_STEPS) * Tile::MMA_K,
               [&](int y, int c) { return right.panel + right.down(y) + right.down(c); });
    packed += Tile::SLICE_K / 2;
    right.panel += right.down(Tile::SLICE_K);
  }

  // The metadata words of this lane for the warp whose rows start at `first`.
  __device__ __forceinline__ void load_meta(u32 (&words)[Tile::MMA_STEPS][Tile::META_WORDS],
                                            int first, int left) {
    Tile::load_meta(words, meta, meta_pitch, first, rows, left);
    meta += Tile::MMA_STEPS * meta_pitch;
  }
};

struct SparseMmaProblem {
  long long m, n, packed_columns;
  long long steps;  // of k to multiply; 0 where alpha is 0
  long long batches;
};

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::MIN_BLOCKS)
    semi_structured_addmm_sm80(const __grid_constant__ View out, const T* packed, const u32* meta,
                               const __grid_constant__ View dense,
                               const __grid_constant__ Batch batch,
                               const __grid_constant__ SparseMmaProblem problem,
                               const __grid_constant__ Op::Args epilogue) {
  extern __shared__ __align__(128) unsigned char stages[];

  const long long row_tiles = ceil_div(problem.m, TILE_M);
  const long long column_tiles = ceil_div(problem.n, TILE_N);
  const long long tiles = row_tiles * column_tiles * problem.batches;

  // The grid covers all tiles unless they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    // 32-bit numbers of tiles, to save registers.
    const int row_tile = int(tile % row_tiles), b = int(tile / row_tiles / column_tiles);
    const int column_tile = int(tile / row_tiles % column_tiles);
    const long long top = (long long)row_tile * TILE_M;
    const long long first_col = (long long)column_tile * TILE_N;

    Tile::Outputs outputs;
    Operands operands;
    operands.rows = int(min((long long)TILE_M, problem.m - top));
    operands.packed_pitch = problem.packed_columns;
    operands.packed =
        packed + (top + threadIdx.x / 4) * problem.packed_columns + threadIdx.x % 4 * Tile::VECTOR;
    operands.meta_pitch = problem.m * 32 / Tile::META_ROWS;
    operands.meta = meta + (top + outputs.row) * 32 / Tile::META_ROWS + outputs.lane;
    operands.right = {batch_ptr<const T>(dense, batch, b) + first_col * dense.col, dense.row,
                      dense.col, int(min((long long)TILE_N, problem.n - first_col))};

    Tile::multiply(outputs, stages, int(problem.steps), operands);
    Tile::write<Op>(outputs, stages, out, batch, epilogue, b, top, first_col, operands.rows,
                    operands.right.columns);
  }
}
