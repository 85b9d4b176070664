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
#include "common/semi_structured.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp_tile.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma_sp.cuh"

typedef Acc<T>::type A;

constexpr int SIZE = sizeof(T);
constexpr Layout LAYOUT =
    SIZE == 1 && Layout::DENSE == Layout::rows ? Layout::bytes : Layout::DENSE;
constexpr int STEPS = 2;                 // mma.sp steps of a slice
constexpr int STEP_K = MmaSp<T>::k;      // 64 bytes of dense k
constexpr int SLICE_K = STEPS * STEP_K;  // dense k of a slice
constexpr int PIECE = 16 / SIZE;         // elements of a 16-byte copy
constexpr int THREADS = 128, WARPS_N = 2;
constexpr int WARP_M = TILE_M / 2, WARP_N = TILE_N / WARPS_N;
constexpr int META_ROWS = SIZE == 1 ? 16 : 32;  // rows that 32 words of metadata describe
constexpr int META_WORDS = WARP_M / META_ROWS;  // words of a lane for one step
static_assert(WARP_M % 32 == 0 && WARP_N % 8 == 0, "a warp multiplies 32 x 8 outputs at a time");

// The two tiles of a slice (common/warp_tile.cuh).
constexpr bool RIGHT_BY_LINE = LAYOUT != Layout::rows;
constexpr int LEFT_PITCH = LINE_PITCH<STEPS * 32>;
constexpr int RIGHT_PITCH = RIGHT_BY_LINE ? LINE_PITCH<STEPS * 64> : K_PITCH<T, TILE_N>;
constexpr int LEFT_BYTES = TILE_M * LEFT_PITCH;
constexpr int RIGHT_BYTES = (RIGHT_BY_LINE ? TILE_N : SLICE_K) * RIGHT_PITCH;
constexpr int STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES;  // engines/cuda/semi_structured.py knows this

// The sums take the place of the stages at the end, so that the outputs are written in the order
// in which they lie in memory. An odd pitch: rows and columns are both read without conflicts.
constexpr int SUM_PITCH = TILE_N + 1;
static_assert(TILE_M * SUM_PITCH * 4 <= STAGES * STAGE_BYTES, "the sums fit where the stages were");

// What a row beyond M is told: a code that is legal in every format.
constexpr u32 ABSENT_META = 0x44444444u;

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

template <typename U, typename V>
struct SameType {
  static constexpr bool value = false;
};
template <typename U>
struct SameType<U, U> {
  static constexpr bool value = true;
};

// d += a @ b for the 16 rows number `i` of a warp. 16-bit metadata: the words of 32 rows serve two
// products, the upper 16 rows through lanes 0, 1 of each four (selector 0), the lower through 2, 3.
template <typename U>
__device__ __forceinline__ void sparse_mma(A (&d)[4], const u32 (&a)[4], const u32 (&b)[4],
                                           const u32 (&meta)[META_WORDS], int i) {
  if constexpr (sizeof(U) != 1) {
    if (i % 2 == 0)
      MmaSp<U>::template run<0>(d, a, b, meta[i / 2]);
    else
      MmaSp<U>::template run<1>(d, a, b, meta[i / 2]);
  } else if constexpr (SameType<U, e4m3>::value) {
    // The tensor cores keep some 13 bits when they add e4m3 products to an accumulator: each sum
    // of 32 products starts at zero, and float32 registers add these sums.
    A part[4] = {};
    MmaSp<U>::template run<0>(part, a, b, meta[i]);
#pragma unroll
    for (int r = 0; r < 4; ++r) d[r] += part[r];
  } else {
    MmaSp<U>::template run<0>(d, a, b, meta[i]);
  }
}

typedef WarpTile<A, WARP_M, WARP_N, WARPS_N> Outputs;

// Add the products of one slice, of which `steps` steps are within the matrix.
__device__ __forceinline__ void multiply(Outputs& outputs, const unsigned char* left,
                                         const unsigned char* right,
                                         const u32 (&meta)[STEPS][META_WORDS], long long steps) {
  const Fragments<T, SixteenRows, true, LEFT_PITCH> rows(left, outputs.row);
  const Fragments<T, EightColumns, RIGHT_BY_LINE, RIGHT_PITCH> columns(right, outputs.col);
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    if (s >= steps) break;
    u32 a[WARP_M / 16][4];
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) rows.load(a[i], 16 * i, 2 * s);
#pragma unroll
    for (int j = 0; j < WARP_N / 8; ++j) {
      u32 b[4];
      columns.load(b, 8 * j, 4 * s);
#pragma unroll
      for (int i = 0; i < WARP_M / 16; ++i) sparse_mma<T>(outputs.sum[i][j], a[i], b, meta[s], i);
    }
  }
}

// Lay the sums out as a TILE_M x TILE_N matrix in shared memory.
__device__ __forceinline__ void store(const Outputs& outputs, A* sums) {
#pragma unroll
  for (int i = 0; i < WARP_M / 16; ++i) {
    A* corner = sums + (outputs.row + 16 * i) * SUM_PITCH + outputs.col;
    outputs.sixteen_rows(i, [&](int m, int n, A sum) { corner[m * SUM_PITCH + n] = sum; });
  }
}

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
