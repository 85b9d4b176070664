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
// Any N and any layout of `dense`; what a tile holds beyond M or N is zero:
//
//   -DDENSE=rows      rows of 16-byte pieces, kept k by k (8-bit: as `bytes`)
//   -DDENSE=columns   columns of 16-byte pieces, kept column by column
//   -DDENSE=bytes     8-bit rows: 4 x 4 bytes at a time are transposed on their way to columns
//   -DDENSE=strided   element by element, kept column by column
//
//   -DT dtype of the operands; -DOUT, -DEPILOGUE, -DACT as in common/epilogue.cuh;
//   -DTILE_M, -DTILE_N outputs of a thread block, shared by 2 x 2 warps; -DSTAGES
#include "common/epilogue.cuh"
#include "common/sparse_slices.cuh"
#include "common/view.cuh"

// The operands of one tile of the output.
struct Operands {
  const T* packed;         // the tile's first row
  const u32* meta;         // as words: 32 consecutive ones a step and META_ROWS rows
  const T* panel;          // dense, at the tile's first column
  long long packed_pitch;  // elements of a packed row
  long long meta_pitch;    // words of a step
  long long row, col;      // strides of dense
  long long steps;
  int rows, columns;  // of the tile, within the matrix

  // Bring the packed values of a slice: TILE_M rows of 64 bytes.
  __device__ __forceinline__ void load_left(unsigned char* left, long long step) const {
    const int piece = threadIdx.x % 4;
    const bool inside = step + piece / 2 < steps;  // a step is two pieces
    for (int m = threadIdx.x / 4; m < TILE_M; m += THREADS / 4) {
      const bool valid = inside && m < rows;
      const T* from = packed + m * packed_pitch + step * (STEP_K / 2) + piece * PIECE;
      cp_async<16>(left + m * LEFT_PITCH + piece * 16, valid ? from : packed, valid);
    }
  }

  // The metadata words of this lane for the warp whose rows start at `first`.
  __device__ __forceinline__ void load_meta(u32 (&words)[STEPS][META_WORDS], long long step,
                                            int first) const {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int i = 0; i < META_WORDS; ++i) {
        const int m = first + i * META_ROWS;
        const bool valid = step + s < steps && m < rows;
        const u32* from = meta + (step + s) * meta_pitch + m / META_ROWS * 32 + threadIdx.x % 32;
        words[s][i] = valid ? __ldg(from) : ABSENT_META;
      }
  }

  // Bring the rows of dense that the slice was chosen from.
  __device__ __forceinline__ void load_right(unsigned char* right, long long step) const {
    const long long start = step * STEP_K, end = steps * STEP_K;
    if constexpr (LAYOUT == Layout::rows) {
      constexpr int PIECES = TILE_N / PIECE;
      for (int e = threadIdx.x; e < SLICE_K * PIECES; e += THREADS) {
        const int k = e / PIECES, n = e % PIECES * PIECE;
        const bool valid = start + k < end && n < columns;
        const int bytes = valid ? min((columns - n) * SIZE, 16) : 0;
        const T* from = valid ? panel + (start + k) * row + n : panel;
        cp_async_partial<16>(right + k * RIGHT_PITCH + n * SIZE, from, bytes);
      }
    } else if constexpr (LAYOUT == Layout::columns) {
      const int piece = threadIdx.x % 8;
      const long long k = start + piece * PIECE;
      for (int n = threadIdx.x / 8; n < TILE_N; n += THREADS / 8) {
        const bool valid = k < end && n < columns;
        cp_async<16>(right + n * RIGHT_PITCH + piece * 16, valid ? panel + k + n * col : panel,
                     valid);
      }
    } else if constexpr (LAYOUT == Layout::bytes) {
      transpose_bytes<TILE_N, SLICE_K, 32, THREADS, RIGHT_PITCH>(right, [&](int k, int n) {
        const bool valid = start + k < end;
        return valid ? four_bytes(panel + (start + k) * row + n, columns - n) : 0;
      });
    } else {
      const bool by_column = row < col;
      for (int e = threadIdx.x; e < SLICE_K * TILE_N; e += THREADS) {
        const int k = by_column ? e % SLICE_K : e / TILE_N;
        const int n = by_column ? e / SLICE_K : e % TILE_N;
        reinterpret_cast<T*>(right + n * RIGHT_PITCH)[k] =
            start + k < end && n < columns ? panel[(start + k) * row + n * col] : zero_of<T>();
      }
    }
  }
};

// sizes: m, n, packed columns, steps of k to multiply (0 where alpha is 0), batches
struct Sizes {
  long long m, n, packed_columns, steps, batches;
};

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    semi_structured_addmm_sm80(const __grid_constant__ View out, const T* packed, const u32* meta,
                               const __grid_constant__ View dense,
                               const __grid_constant__ Batch batch,
                               const __grid_constant__ Sizes sizes,
                               const __grid_constant__ Epilogue<A> epilogue) {
  extern __shared__ __align__(16) unsigned char stages[];

  const long long row_tiles = (sizes.m + TILE_M - 1) / TILE_M;
  const long long column_tiles = (sizes.n + TILE_N - 1) / TILE_N;
  const long long tiles = row_tiles * column_tiles * sizes.batches;

  // The grid covers all tiles unless they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const long long top = tile % row_tiles * TILE_M;
    const long long first_col = tile / row_tiles % column_tiles * TILE_N;
    const long long b = tile / row_tiles / column_tiles;

    Operands operands;
    operands.rows = int(min((long long)TILE_M, sizes.m - top));
    operands.columns = int(min((long long)TILE_N, sizes.n - first_col));
    operands.steps = sizes.steps;
    operands.packed_pitch = sizes.packed_columns;
    operands.packed = packed + top * sizes.packed_columns;
    operands.meta_pitch = sizes.m * 32 / META_ROWS;
    operands.meta = meta + top * 32 / META_ROWS;
    operands.row = dense.row;
    operands.col = dense.col;
    operands.panel = batch_ptr<const T>(dense, batch, b) + first_col * dense.col;

    // STAGES - 1 slices are under way while one is multiplied. Each turn commits one group of
    // copies, an empty one at the end, so that the count of groups to wait for stays the same.
    Outputs outputs;
    const long long slices = (sizes.steps + STEPS - 1) / STEPS;
    auto load = [&](long long slice) {
      if (slice < slices) {
        unsigned char* stage = stages + slice % STAGES * STAGE_BYTES;
        operands.load_left(stage, slice * STEPS);
        operands.load_right(stage + LEFT_BYTES, slice * STEPS);
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
      multiply(outputs, stage, stage + LEFT_BYTES, words, sizes.steps - slice * STEPS);
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
