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
#include "common/epilogue.cuh"
#include "common/sparse_slices.cuh"
#include "common/view.cuh"

// Where the rows of `dense` begin that the steps of a slice meet.
struct DenseRows {
  long long first[STEPS];
};

// The operands of one tile of the output.
struct Operands {
  const T* packed;             // the tile's first row in the first block
  const u32* meta;             // of the first block, as words: 32 consecutive ones META_ROWS rows
  const INDEX* columns_of;     // block columns of the blocks
  const T* panel;              // dense, at the tile's first column
  long long index_step;        // from one of them to the next
  long long row, col;          // strides of dense
  long long block_values;      // of a packed block
  long long block_words;       // of its metadata
  long long steps;             // of all blocks
  int block_steps;             // of a block
  int packed_pitch;            // elements of a packed row
  int meta_pitch, meta_first;  // words of a step; the tile's first one
  int rows, columns;           // of the tile, within the block and the matrix

  // Bring the packed values of a slice: TILE_M rows of 64 bytes.
  __device__ __forceinline__ void load_left(unsigned char* left, long long step) const {
    const int piece = threadIdx.x % 4;
    step += piece / 2;  // a step is two pieces
    const bool inside = step < steps;
    const T* block = packed + step / block_steps * block_values +
                     step % block_steps * (STEP_K / 2) + piece % 2 * PIECE;
    for (int m = threadIdx.x / 4; m < TILE_M; m += THREADS / 4) {
      const bool valid = inside && m < rows;
      cp_async<16>(left + m * LEFT_PITCH + piece * 16, valid ? block + m * packed_pitch : packed,
                   valid);
    }
  }

  // The metadata words of this lane for the warp whose rows start at `first`.
  __device__ __forceinline__ void load_meta(u32 (&words)[STEPS][META_WORDS], long long step,
                                            int first) const {
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const long long at = step + s;
      const u32* block = meta + at / block_steps * block_words + at % block_steps * meta_pitch +
                         meta_first + threadIdx.x % 32;
#pragma unroll
      for (int i = 0; i < META_WORDS; ++i) {
        const int m = first + i * META_ROWS;
        words[s][i] = at < steps && m < rows ? __ldg(block + m / META_ROWS * 32) : ABSENT_META;
      }
    }
  }

  __device__ __forceinline__ DenseRows find_right(long long step) const {
    DenseRows found;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const long long at = step + s, block = at / block_steps;
      const long long column = at < steps ? columns_of[block * index_step] : 0;
      found.first[s] = (column * block_steps + at % block_steps) * STEP_K;
    }
    return found;
  }

  // Bring the rows of dense that the slice was chosen from.
  __device__ __forceinline__ void load_right(unsigned char* right, long long step,
                                             const DenseRows& found) const {
    const int end = int(min((steps - step) * STEP_K, (long long)SLICE_K));
    auto at = [&](int k) { return (k < STEP_K ? found.first[0] : found.first[1]) + k % STEP_K; };
    if constexpr (LAYOUT == Layout::rows) {
      constexpr int PIECES = TILE_N / PIECE;
      for (int e = threadIdx.x; e < SLICE_K * PIECES; e += THREADS) {
        const int k = e / PIECES, n = e % PIECES * PIECE;
        const bool valid = k < end && n < columns;
        const int bytes = valid ? min((columns - n) * SIZE, 16) : 0;
        const T* from = valid ? panel + at(k) * row + n : panel;
        cp_async_partial<16>(right + k * RIGHT_PITCH + n * SIZE, from, bytes);
      }
    } else if constexpr (LAYOUT == Layout::columns) {
      const int piece = threadIdx.x % 8, k = piece * PIECE;
      const T* from = panel + at(k);
      for (int n = threadIdx.x / 8; n < TILE_N; n += THREADS / 8) {
        const bool valid = k < end && n < columns;
        cp_async<16>(right + n * RIGHT_PITCH + piece * 16, valid ? from + n * col : panel, valid);
      }
    } else if constexpr (LAYOUT == Layout::bytes) {
      transpose_bytes<TILE_N, SLICE_K, 32, THREADS, RIGHT_PITCH>(right, [&](int k, int n) {
        return k < end ? four_bytes(panel + at(k) * row + n, columns - n) : 0;
      });
    } else {
      const bool by_column = row < col;
      for (int e = threadIdx.x; e < SLICE_K * TILE_N; e += THREADS) {
        const int k = by_column ? e % SLICE_K : e / TILE_N;
        const int n = by_column ? e / SLICE_K : e % TILE_N;
        reinterpret_cast<T*>(right + n * RIGHT_PITCH)[k] =
            k < end && n < columns ? panel[at(k) * row + n * col] : zero_of<T>();
      }
    }
  }
};

struct Sizes {
  long long batches, block_rows, columns;  // of the output; columns is N
  int bm, bk;
};

// Arguments as of bsr_semi_structured_addmm_simt.cu.
extern "C" __global__ void __launch_bounds__(THREADS, 2) bsr_semi_structured_addmm_sm80(
    const __grid_constant__ View out, const __grid_constant__ View indptr,
    const __grid_constant__ View indices, const __grid_constant__ View packed,
    const __grid_constant__ View meta, const __grid_constant__ View dense,
    const __grid_constant__ Batch batch, const __grid_constant__ Sizes sizes,
    const __grid_constant__ Epilogue<A> epilogue) {
  extern __shared__ __align__(16) unsigned char stages[];

  const int slices_m = (sizes.bm + TILE_M - 1) / TILE_M;
  const long long row_tiles = sizes.batches * sizes.block_rows * slices_m;
  const long long column_tiles = (sizes.columns + TILE_N - 1) / TILE_N;

  // The grid covers all tiles unless they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < row_tiles * column_tiles; tile += gridDim.x) {
    const long long x = tile % row_tiles;
    const long long first_col = tile / row_tiles * TILE_N;
    const int first_row = int(x % slices_m) * TILE_M;  // within the block row
    const long long block_row = x / slices_m % sizes.block_rows;
    const long long b = x / slices_m / sizes.block_rows;

    Operands operands;
    operands.rows = min(TILE_M, sizes.bm - first_row);
    operands.columns = int(min((long long)TILE_N, sizes.columns - first_col));
    operands.packed_pitch = sizes.bk / 2;
    operands.block_steps = sizes.bk / STEP_K;
    operands.block_values = (long long)sizes.bm * operands.packed_pitch;
    operands.meta_pitch = sizes.bm * 32 / META_ROWS;
    operands.meta_first = first_row * 32 / META_ROWS;
    operands.block_words = (long long)operands.meta_pitch * operands.block_steps;
    operands.row = dense.row;
    operands.col = dense.col;
    operands.steps = 0;
    if (indptr.ptr) {
      const INDEX* starts = batch_ptr<const INDEX>(indptr, batch, b) + block_row * indptr.row;
      const long long first = starts[0];
      operands.steps = (starts[indptr.row] - first) * operands.block_steps;
      operands.packed = batch_ptr<const T>(packed, batch, b) + first * operands.block_values +
                        (long long)first_row * operands.packed_pitch;
      operands.meta =
          reinterpret_cast<const u32*>(batch_ptr<const Meta24<SIZE>::type>(meta, batch, b)) +
          first * operands.block_words;
      operands.columns_of = batch_ptr<const INDEX>(indices, batch, b) + first * indices.row;
      operands.index_step = indices.row;
      operands.panel = batch_ptr<const T>(dense, batch, b) + first_col * dense.col;
    }

    // STAGES - 1 slices are under way while one is multiplied. Each turn commits one group of
    // copies, an empty one at the end, so that the count of groups to wait for stays the same.
    // Where the next slice's rows of dense are is looked up a turn before they are brought.
    Outputs outputs;
    const long long slices = (operands.steps + STEPS - 1) / STEPS;
    DenseRows found = operands.find_right(0);
    auto load = [&](long long slice) {
      if (slice < slices) {
        unsigned char* stage = stages + slice % STAGES * STAGE_BYTES;
        operands.load_left(stage, slice * STEPS);
        operands.load_right(stage + LEFT_BYTES, slice * STEPS, found);
        found = operands.find_right((slice + 1) * STEPS);
      }
      cp_async_commit();
    };
    u32 words[STEPS][META_WORDS], next[STEPS][META_WORDS];
    operands.load_meta(words, 0, outputs.row);
    for (int slice = 0; slice < STAGES - 1; ++slice) load(slice);
    for (long long slice = 0; slice < slices; ++slice) {
      operands.load_meta(next, (slice + 1) * STEPS, outputs.row);
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // slice `slice` is here, and the one before is no longer read
      load(slice + STAGES - 1);
      const unsigned char* stage = stages + slice % STAGES * STAGE_BYTES;
      multiply(outputs, stage, stage + LEFT_BYTES, words, operands.steps - slice * STEPS);
#pragma unroll
      for (int s = 0; s < STEPS; ++s)
#pragma unroll
        for (int i = 0; i < META_WORDS; ++i) words[s][i] = next[s][i];
    }
    cp_async_wait<0>();
    __syncthreads();  // nothing is copied to the stages or read from them any more

    A* sums = reinterpret_cast<A*>(stages);
    store(outputs, sums);
    __syncthreads();
    const Finish<A, OUT> finish(epilogue, batch, b);
    OUT* out_matrix = batch_ptr<OUT>(out, batch, b);
    const long long top = block_row * sizes.bm + first_row;
    const bool by_row = out.col < out.row;
#pragma unroll 1
    for (int e = threadIdx.x; e < TILE_M * TILE_N; e += THREADS) {
      const int m = by_row ? e / TILE_N : e % TILE_M;
      const int n = by_row ? e % TILE_N : e / TILE_M;
      if (m < operands.rows && n < operands.columns)
        out_matrix[element_offset(out, top + m, first_col + n)] =
            finish(sums[m * SUM_PITCH + n], top + m, first_col + n);
    }
    __syncthreads();  // before the next tile's slices come
  }
}
