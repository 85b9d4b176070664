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

// The operands of one tile of the output.
struct Operands {
  const T* packed;              // the tile's first row in the first block
  const u32* meta;              // of the first block, as words: 32 consecutive ones META_ROWS rows
  const INDEX* columns_of;      // block columns of the blocks
  Right right;                  // dense
  long long index_step;         // from one of them to the next
  long long block_values;       // of a packed block
  long long block_words;        // of its metadata
  long long steps;              // of all blocks
  int block_steps;              // of a block
  int packed_pitch;             // elements of a packed row
  int meta_pitch, meta_first;   // words of a step; the tile's first one
  int rows;                     // of the tile, within the block
  long long dense_rows[STEPS];  // where they begin that the steps of the next slice meet

  // Bring the packed values of a slice, and the rows of dense that they were chosen from. Where the
  // next slice's rows are is looked up a turn before they are brought.
  __device__ __forceinline__ void bring(unsigned char* stage, long long step) {
    const int piece = threadIdx.x % 4;
    const long long at = step + piece / 2;  // a step is two pieces
    const T* block = packed + at / block_steps * block_values + at % block_steps * (STEP_K / 2) +
                     piece % 2 * PIECE;
    bring_packed(stage, at < steps ? block : packed, packed_pitch, at < steps ? rows : 0);
    auto row_of = [&](int k) { return (k < STEP_K ? dense_rows[0] : dense_rows[1]) + k % STEP_K; };
    right.bring(stage + LEFT_BYTES, int(min((steps - step) * STEP_K, (long long)SLICE_K)), row_of);
    find_right(step + STEPS);
  }

  __device__ __forceinline__ void find_right(long long step) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const long long at = step + s, block = at / block_steps;
      const long long column = at < steps ? columns_of[block * index_step] : 0;
      dense_rows[s] = (column * block_steps + at % block_steps) * STEP_K;
    }
  }

  // The metadata words of this lane for the warp whose rows start at `first`.
  __device__ __forceinline__ void load_meta(u32 (&words)[STEPS][META_WORDS], long long step,
                                            int first) const {
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const long long at = step + s;
      const u32* block =
          meta + at / block_steps * block_words + at % block_steps * meta_pitch + meta_first;
      load_words(words[s], block, first, at < steps ? rows : 0);
    }
  }
};

// Arguments as of bsr_semi_structured_addmm_simt.cu.
extern "C" __global__ void __launch_bounds__(THREADS, 2) bsr_semi_structured_addmm_sm80(
    const __grid_constant__ View out, const __grid_constant__ View indptr,
    const __grid_constant__ View indices, const __grid_constant__ View packed,
    const __grid_constant__ View meta, const __grid_constant__ View dense,
    const __grid_constant__ Batch batch, const __grid_constant__ Sizes sizes,
    const __grid_constant__ Epilogue<A> epilogue) {
  extern __shared__ __align__(16) unsigned char stages[];

  // The grid covers all tiles unless they are more than a grid may have.
  typedef Tile<TILE_M, TILE_N> Tile;
  const long long tiles = Tile::count(sizes);
  for (long long number = blockIdx.x; number < tiles; number += gridDim.x) {
    const Tile tile(number, sizes);

    Operands operands;
    operands.rows = tile.rows;
    operands.packed_pitch = sizes.bk / 2;
    operands.block_steps = sizes.bk / STEP_K;
    operands.block_values = (long long)sizes.bm * operands.packed_pitch;
    operands.meta_pitch = sizes.bm * 32 / META_ROWS;
    operands.meta_first = tile.first_row * 32 / META_ROWS;
    operands.block_words = (long long)operands.meta_pitch * operands.block_steps;
    operands.right = {nullptr, dense.row, dense.col, tile.columns};
    operands.steps = 0;
    if (indptr.ptr) {
      const INDEX* starts =
          batch_ptr<const INDEX>(indptr, batch, tile.batch) + tile.block_row * indptr.row;
      const long long first = starts[0];
      operands.steps = (starts[indptr.row] - first) * operands.block_steps;
      operands.packed = batch_ptr<const T>(packed, batch, tile.batch) +
                        first * operands.block_values +
                        (long long)tile.first_row * operands.packed_pitch;
      operands.meta = reinterpret_cast<const u32*>(
                          batch_ptr<const Meta24<SIZE>::type>(meta, batch, tile.batch)) +
                      first * operands.block_words;
      operands.columns_of =
          batch_ptr<const INDEX>(indices, batch, tile.batch) + first * indices.row;
      operands.index_step = indices.row;
      operands.right.panel =
          batch_ptr<const T>(dense, batch, tile.batch) + tile.first_col * dense.col;
    }
    operands.find_right(0);

    Outputs outputs;
    multiply_slices(outputs, stages, operands.steps, operands);
    write_outputs(outputs, stages, out, batch, epilogue, tile.batch, tile.top, tile.first_col,
                  tile.rows, tile.columns);
  }
}
