// BSR @ dense of blocks that are 2:4 themselves, through mma.sp (8.0 and later): bfloat16, float16,
// int8, and float32 (1:2) as TF32 where the caller allows it.
//
// semi_structured_addmm_sm80.cu, to be read first, says how tiles, slices and metadata come and are
// multiplied. Here a tile has rows of one block row, and k runs over its blocks, one behind the
// other: the format makes every block a whole number of steps wide, so that each step of a slice
// has a block, and rows of `dense`, of its own.
//
//   -DT dtype of the operands, -DINDEX of indptr and indices; -DOUT, -DEPILOGUE, -DACT as in
//   common/epilogue.cuh; -DDENSE as in semi_structured_addmm_sm80.cu;
//   -DTILE_M=32|64|128, -DTILE_N outputs of a thread block, shared by its four warps; -DSTAGES
#include "common/block_row_tiles.cuh"
#include "common/sparse_slices.cuh"

using namespace sparsegpu;

// The operands of one tile of the output, from the next slice on.
struct Operands {
  const T* packed;           // this thread's first piece
  const u32* meta;           // of this lane and its warp, as words: 32 a step and META_ROWS rows
  const INDEX* column;       // block column of the step of dense that is to be found next
  Right right;               // dense
  const T* dense_at[STEPS];  // where it begins that the steps of the slice meet
  long long index_step;      // from a block column to the next
  int to_next_block;         // from the end of a packed block's row to that row in the next block
  int packed_step, dense_step;  // of the block
  int block_steps;              // of a block
  int packed_pitch;             // elements of a packed row
  int meta_pitch;               // words of a step
  int rows;                     // of the tile, within the block

  // Bring the packed values of a slice, and the rows of dense that they were chosen from. Where the
  // next slice's rows are is looked up a turn before they are brought.
  __device__ __forceinline__ void bring(unsigned char* stage, int left) {
    const bool inside = int(threadIdx.x % 4 / 2) < left;  // a step is two pieces
    bring_packed(stage, packed, packed_pitch, inside ? rows : 0);
    pass_packed(STEPS);
    right.bring(stage + LEFT_BYTES, min(left, STEPS) * STEP_K, [&](int y, int c) {
      const int k = y + c;
      return (k < STEP_K ? dense_at[0] : dense_at[1]) + right.down(k % STEP_K);
    });
    find_right(left - STEPS);
  }

  __device__ __forceinline__ void pass_packed(int steps) {
    packed += steps * (STEP_K / 2);
    packed_step += steps;
    for (; packed_step >= block_steps; packed_step -= block_steps) packed += to_next_block;
  }

  __device__ __forceinline__ void find_right(int left) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      if (s >= left) return;
      const long long first = ((long long)*column * block_steps + dense_step) * STEP_K;
      dense_at[s] = right.panel + right.down(first);
      if (++dense_step == block_steps) dense_step = 0, column += index_step;
    }
  }

  // The metadata words of this lane for the warp whose rows start at `first`.
  __device__ __forceinline__ void load_meta(u32 (&words)[STEPS][META_WORDS], int first, int left) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
      load_words(words[s], meta + s * meta_pitch, first, s < left ? rows : 0);
    meta += STEPS * meta_pitch;
  }
};

// Arguments as of bsr_semi_structured_addmm_simt.cu.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) bsr_semi_structured_addmm_sm80(
    const __grid_constant__ View out, const __grid_constant__ View indptr,
    const __grid_constant__ View indices, const __grid_constant__ View packed,
    const __grid_constant__ View meta, const __grid_constant__ View dense,
    const __grid_constant__ Batch batch, const __grid_constant__ Sizes sizes,
    const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  extern __shared__ __align__(128) unsigned char stages[];

  // The grid covers all tiles unless they are more than a grid may have.
  typedef Tile<TILE_M, TILE_N> Tile;
  const long long tiles = Tile::count(sizes);
  for (long long number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile(number, sizes);

    Outputs outputs;
    Operands operands;
    operands.rows = tile.rows;
    operands.packed_pitch = sizes.bk / 2;
    operands.block_steps = sizes.bk / STEP_K;
    operands.to_next_block = (sizes.bm - 1) * operands.packed_pitch;
    operands.meta_pitch = sizes.bm * 32 / META_ROWS;
    operands.right = {nullptr, dense.row, dense.col, tile.columns};
    int steps = 0;
    if (indptr.ptr) {
      const INDEX* starts =
          batch_ptr<const INDEX>(indptr, batch, tile.batch) + tile.block_row * indptr.row;
      const long long first = starts[0];
      steps = int(starts[indptr.row] - first) * operands.block_steps;
      operands.packed =
          batch_ptr<const T>(packed, batch, tile.batch) +
          (first * sizes.bm + tile.first_row + threadIdx.x / 4) * operands.packed_pitch +
          threadIdx.x % 2 * PIECE;
      operands.meta = reinterpret_cast<const u32*>(
                          batch_ptr<const Meta24<SIZE>::type>(meta, batch, tile.batch)) +
                      first * operands.block_steps * operands.meta_pitch +
                      (tile.first_row + outputs.row) * 32 / META_ROWS + outputs.lane;
      operands.column = batch_ptr<const INDEX>(indices, batch, tile.batch) + first * indices.row;
      operands.index_step = indices.row;
      operands.right.panel =
          batch_ptr<const T>(dense, batch, tile.batch) + tile.first_col * dense.col;
    }
    operands.packed_step = operands.dense_step = 0;
    operands.pass_packed(threadIdx.x % 4 / 2);
    operands.find_right(steps);

    multiply_slices(outputs, stages, steps, operands);
    write_outputs(outputs, stages, out, batch, epilogue, tile.batch, tile.top, tile.first_col,
                  tile.rows, tile.columns);
  }
}
