// 2:4 @ dense on sparse tensor cores through mma.sp (8.0 and later; e4m3 from 8.9): bfloat16,
// float16, int8, e4m3, and float32 (1:2) as TF32 where the caller allows it.
//
// An mma.sp takes 32 bytes of a packed row and the 64 bytes of a dense column that they were
// chosen from (ptx/mma_sp.cuh); counted in bytes the fragments of all dtypes are the same. A slice
// is two such steps: 64 bytes of each packed row and 128 of each column, brought to shared memory
// by cp.async, STAGES slices under way at once. Metadata goes straight to registers: in CUTLASS's
// order (common/semi_structured.cuh) the word of lane i of a warp is the i-th of 32 consecutive
// words, for 32 rows of 16-bit metadata (two mma.sp, told apart by the selector) or for 16 rows of
// 32-bit metadata.
//
// Any N and any layout of `dense`; what a tile holds beyond M or N is zero.
//
//   -DDENSE=rows|columns|strided   as in common/dense_slice.cuh; rows are of 16 or 32 bits
//   -DT dtype of the operands; -DOUT, -DEPILOGUE, -DACT as in common/epilogue.cuh;
//   -DTILE_M, -DTILE_N outputs of a thread block, shared by 2 x 2 warps; -DSTAGES
#include "common/sparse_slices.cuh"

using namespace sparsegpu;

// The operands of one tile of the output, from the next slice on.
struct Operands {
  const T* packed;         // this thread's first piece
  const u32* meta;         // of this lane and its warp, as words: 32 a step and META_ROWS rows
  Right right;             // dense
  long long packed_pitch;  // elements of a packed row
  long long meta_pitch;    // words of a step
  int rows;                // of the tile, within the matrix

  // Bring the packed values of a slice, and the rows of dense that they were chosen from.
  __device__ __forceinline__ void bring(unsigned char* stage, int left) {
    const bool inside = int(threadIdx.x % 4 / 2) < left;  // a step is two pieces
    bring_packed(stage, packed, packed_pitch, inside ? rows : 0);
    right.bring(stage + LEFT_BYTES, min(left, STEPS) * STEP_K,
                [&](int y, int c) { return right.panel + right.down(y) + right.down(c); });
    packed += SLICE_K / 2;
    right.panel += right.down(SLICE_K);
  }

  // The metadata words of this lane for the warp whose rows start at `first`.
  __device__ __forceinline__ void load_meta(u32 (&words)[STEPS][META_WORDS], int first, int left) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
      load_words(words[s], meta + s * meta_pitch, first, s < left ? rows : 0);
    meta += STEPS * meta_pitch;
  }
};

// sizes: m, n, packed columns, steps of k to multiply (0 where alpha is 0), batches
struct Sizes {
  long long m, n, packed_columns, steps, batches;
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    semi_structured_addmm_sm80(const __grid_constant__ View out, const T* packed, const u32* meta,
                               const __grid_constant__ View dense,
                               const __grid_constant__ Batch batch,
                               const __grid_constant__ Sizes sizes,
                               const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  extern __shared__ __align__(128) unsigned char stages[];

  const long long row_tiles = (sizes.m + TILE_M - 1) / TILE_M;
  const long long column_tiles = (sizes.n + TILE_N - 1) / TILE_N;
  const long long tiles = row_tiles * column_tiles * sizes.batches;

  // The grid covers all tiles unless they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    // As few registers as they need beside the sums.
    const int row_tile = int(tile % row_tiles), b = int(tile / row_tiles / column_tiles);
    const int column_tile = int(tile / row_tiles % column_tiles);
    const long long top = (long long)row_tile * TILE_M;
    const long long first_col = (long long)column_tile * TILE_N;

    Outputs outputs;
    Operands operands;
    operands.rows = int(min((long long)TILE_M, sizes.m - top));
    operands.packed_pitch = sizes.packed_columns;
    operands.packed =
        packed + (top + threadIdx.x / 4) * sizes.packed_columns + threadIdx.x % 4 * PIECE;
    operands.meta_pitch = sizes.m * 32 / META_ROWS;
    operands.meta = meta + (top + outputs.row) * 32 / META_ROWS + outputs.lane;
    operands.right = {batch_ptr<const T>(dense, batch, b) + first_col * dense.col, dense.row,
                      dense.col, int(min((long long)TILE_N, sizes.n - first_col))};

    multiply_slices(outputs, stages, int(sizes.steps), operands);
    write_outputs(outputs, stages, out, batch, epilogue, b, top, first_col, operands.rows,
                  operands.right.columns);
  }
}
