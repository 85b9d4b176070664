// BSR @ dense of blocks that are 2:4 themselves, through mma.sp (8.0 and later): bfloat16, float16,
// int8, and float32 (1:2) as TF32 where the caller allows it.
//
// semi_structured_addmm_sm80.cu, to be read first, says how tiles, slices and metadata are loaded
// and multiplied. Here a tile has rows of one block row, and k runs over its blocks, one after the
// other: the format makes every block a whole number of steps wide, so that each step of a slice
// has a block, and rows of `dense`, of its own.
//
//   -DT dtype of the operands, -DINDEX of indptr and indices; -DOUT, -DEPILOGUE, -DACT
//   (common/kernel_epilogue.cuh); -DDENSE as in semi_structured_addmm_sm80.cu;
//   -DTILE_M=32|64|128, -DTILE_N outputs of a thread block, shared by its four warps; -DSTAGES
#include "common/kernel_epilogue.cuh"
#include "common/row_tile_scheduler.cuh"
#include "common/sparse_mma_tile.cuh"

using namespace sparsegpu;

typedef SparseMmaTile<T, Layout::DENSE, TILE_M, TILE_N, STAGES> SparseTile;
typedef KernelEpilogue<SparseTile::A, OUT> Op;
constexpr int MMA_STEPS = SparseTile::MMA_STEPS, MMA_K = SparseTile::MMA_K;
constexpr int META_ROWS = SparseTile::META_ROWS;

// The operands of one tile of the output, from the next slice on.
struct Operands {
  const T* packed;          // this thread's first vector
  const u32* meta;          // of this lane and its warp, as words: 32 a step and META_ROWS rows
  const INDEX* column;      // block column of the step of dense that is to be found next
  SparseTile::Right right;  // dense
  const T* dense_at[MMA_STEPS];  // the rows that the steps of the slice meet
  long long index_step;          // from a block column to the next
  int to_next_block;  // from the end of a packed block's row to that row in the next block
  int packed_step, dense_step;  // of the block
  int block_steps;              // of a block
  int packed_pitch;             // elements of a packed row
  int meta_pitch;               // words of a step
  int rows;                     // of the tile, within the block

  // Copy the packed values of a slice, and the rows of dense that they were chosen from. Where the
  // next slice's rows are is prefetched, an iteration before they are copied.
  __device__ __forceinline__ void load(unsigned char* stage, int left) {
    const bool inside = int(threadIdx.x % 4 / 2) < left;  // a step is two vectors
    SparseTile::load_packed(stage, packed, packed_pitch, inside ? rows : 0);
    advance_packed(MMA_STEPS);
    right.load(stage + SparseTile::LEFT_BYTES, min(left, MMA_STEPS) * MMA_K, [&](int y, int c) {
      const int k = y + c;
      return (k < MMA_K ? dense_at[0] : dense_at[1]) + right.down(k % MMA_K);
    });
    find_right(left - MMA_STEPS);
  }

  __device__ __forceinline__ void advance_packed(int steps) {
    packed += steps * (MMA_K / 2);
    packed_step += steps;
    for (; packed_step >= block_steps; packed_step -= block_steps) packed += to_next_block;
  }

  __device__ __forceinline__ void find_right(int left) {
#pragma unroll
    for (int s = 0; s < MMA_STEPS; ++s) {
      if (s >= left) return;
      const long long first = ((long long)*column * block_steps + dense_step) * MMA_K;
      dense_at[s] = right.panel + right.down(first);
      if (++dense_step == block_steps) dense_step = 0, column += index_step;
    }
  }

  // The metadata words of this lane for the warp whose rows start at `first`.
  __device__ __forceinline__ void load_meta(u32 (&words)[MMA_STEPS][SparseTile::META_WORDS],
                                            int first, int left) {
    SparseTile::load_meta(words, meta, meta_pitch, first, rows, left);
    meta += MMA_STEPS * meta_pitch;
  }
};

// Arguments as of bsr_semi_structured_addmm_simt.cu.
extern "C" __global__ void __launch_bounds__(SparseTile::THREADS, SparseTile::MIN_BLOCKS)
    bsr_semi_structured_addmm_sm80(
        const __grid_constant__ View out, const __grid_constant__ View indptr,
        const __grid_constant__ View indices, const __grid_constant__ View packed,
        const __grid_constant__ View meta, const __grid_constant__ View dense,
        const __grid_constant__ Batch batch, const __grid_constant__ BlockRowProblem problem,
        const __grid_constant__ Op::Args epilogue) {
  extern __shared__ __align__(128) unsigned char stages[];

  // The grid covers all tiles unless they are more than a grid may have.
  typedef BlockRowTile<TILE_M, TILE_N> Tile;
  const long long tiles = Tile::count(problem);
  for (long long number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile(number, problem);

    SparseTile::Outputs outputs;
    Operands operands;
    operands.rows = tile.rows;
    operands.packed_pitch = problem.bk / 2;
    operands.block_steps = problem.bk / MMA_K;
    operands.to_next_block = (problem.bm - 1) * operands.packed_pitch;
    operands.meta_pitch = problem.bm * 32 / META_ROWS;
    operands.right = {nullptr, dense.row, dense.col, tile.columns};
    int steps = 0;
    if (indptr.ptr) {
      const INDEX* starts = tile.starts<INDEX>(indptr, batch);
      const long long first = starts[0];
      steps = int(starts[indptr.row] - first) * operands.block_steps;
      operands.packed =
          batch_ptr<const T>(packed, batch, tile.batch) +
          (first * problem.bm + tile.first_row + threadIdx.x / 4) * operands.packed_pitch +
          threadIdx.x % 2 * SparseTile::VECTOR;
      operands.meta = reinterpret_cast<const u32*>(
                          batch_ptr<const Meta24<sizeof(T)>::type>(meta, batch, tile.batch)) +
                      first * operands.block_steps * operands.meta_pitch +
                      (tile.first_row + outputs.row) * 32 / META_ROWS + outputs.lane;
      operands.column = batch_ptr<const INDEX>(indices, batch, tile.batch) + first * indices.row;
      operands.index_step = indices.row;
      operands.right.panel =
          batch_ptr<const T>(dense, batch, tile.batch) + tile.first_col * dense.col;
    }
    operands.packed_step = operands.dense_step = 0;
    operands.advance_packed(threadIdx.x % 4 / 2);
    operands.find_right(steps);

    SparseTile::multiply(outputs, stages, steps, operands);
    SparseTile::write<Op>(outputs, stages, out, batch, epilogue, tile.batch, tile.top,
                          tile.first_col, tile.rows, tile.columns);
  }
}
