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
//   -DDENSE=rows      rows of 16-byte pieces; the slice is kept as it is, k by k
//   -DDENSE=columns   columns of 16-byte pieces; kept column by column
//   -DDENSE=bytes     int8 rows: 4 x 4 bytes at a time are transposed on their way to columns
//   -DDENSE=strided   element by element, kept column by column
//
// -DDATA_PIECES=1 says that the blocks' rows are 16-byte pieces, too.
//
// -DT, -DINDEX, -DOUT, -DEPILOGUE, -DACT as in bsr_addmm_simt.cu; -DBK columns of a block;
// -DTILE_M, -DTILE_N outputs of a thread block, shared by WARPS_M x WARPS_N warps; -DSTAGES.
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/epilogue.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"

typedef Acc<T>::type A;
enum class Layout { rows, columns, bytes, strided };

constexpr Layout LAYOUT = Layout::DENSE;
constexpr int SIZE = sizeof(T);
constexpr int TILE_K = 64 / SIZE;  // terms of a slice
constexpr int PIECE = 16 / SIZE;   // elements of a 16-byte copy
constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int WARP_M = TILE_M / WARPS_M;
constexpr int WARP_N = TILE_N / WARPS_N;
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "a warp multiplies 16 x 16 outputs at a time");

// Rows of shared memory are padded so that the eight rows of an ldmatrix, and the 4 x 8 words of
// a TF32 fragment, fall into different banks.
constexpr int K_PITCH = 64 + 16;
constexpr int N_PITCH = TILE_N * SIZE + (SIZE == 4 ? 32 : 16);
constexpr int LEFT_BYTES = TILE_M * K_PITCH;
constexpr int RIGHT_BYTES = LAYOUT == Layout::rows ? TILE_K * N_PITCH : TILE_N * K_PITCH;
constexpr int STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES;  // runtime/config.py knows this, too
constexpr int STRIP_PITCH = WARP_N + 8;  // of sixteen rows of outputs on their way out
static_assert(WARPS_M * WARPS_N * 16 * STRIP_PITCH * 4 <= STAGES * STAGE_BYTES, "strips fit");

struct Sizes {
  long long batches, block_rows, columns;
  int bm, bk;
};

// The operands of one tile of the output: left[m][t] and right[t][n], where t counts terms.
struct Operands {
  const T* block;          // data, at the tile's first row of block 0
  const T* panel;          // dense, at the tile's first column
  const INDEX* column_of;  // block column of every block
  long long column_step;
  long long row, col;  // strides of dense
  long long first_block, terms;
  int block_elements, rows, columns;

  // Where term t's column of the blocks starts in `block`.
  __device__ __forceinline__ long long in_data(long long t) const {
    return (first_block + t / BK) * block_elements + t % BK;
  }

  // The row of dense that term t meets.
  __device__ __forceinline__ long long dense_row(long long t) const {
    return (long long)column_of[(first_block + t / BK) * column_step] * BK + t % BK;
  }

  // Bring terms start .. start + TILE_K of the blocks: TILE_M rows of 64 bytes.
  __device__ __forceinline__ void load_left(unsigned char* left, long long start) const {
    if constexpr (DATA_PIECES) {
      const int piece = threadIdx.x % 4;
      const long long t = start + piece * PIECE;
      const long long at = in_data(t);
      for (int m = threadIdx.x / 4; m < TILE_M; m += THREADS / 4) {
        const bool valid = t < terms && m < rows;
        const T* from = valid ? block + at + (long long)m * BK : block;
        cp_async<16>(left + m * K_PITCH + piece * 16, from, valid);
      }
    } else {
      const int k = threadIdx.x % TILE_K;
      const long long t = start + k;
      const long long at = in_data(t);
      for (int m = threadIdx.x / TILE_K; m < TILE_M; m += THREADS / TILE_K) {
        const bool valid = t < terms && m < rows;
        reinterpret_cast<T*>(left + m * K_PITCH)[k] =
            valid ? block[at + (long long)m * BK] : zero_of<T>();
      }
    }
  }

  // Bring the rows of dense that meet them: TILE_K rows (Layout::rows) or TILE_N columns.
  __device__ __forceinline__ void load_right(unsigned char* right, long long start) const {
    if constexpr (LAYOUT == Layout::rows) {
      constexpr int PIECES = TILE_N / PIECE;
      const int n = threadIdx.x % PIECES * PIECE;
      const int bytes = min(max(columns - n, 0) * SIZE, 16);
      for (int k = threadIdx.x / PIECES; k < TILE_K; k += THREADS / PIECES) {
        const long long t = start + k;
        const bool valid = t < terms && bytes > 0;
        const T* from = valid ? panel + dense_row(t) * row + n : panel;
        cp_async_partial<16>(right + k * N_PITCH + n * SIZE, from, valid ? bytes : 0);
      }
    } else if constexpr (LAYOUT == Layout::columns) {
      const int piece = threadIdx.x % 4;
      const long long t = start + piece * PIECE;
      const long long k = t < terms ? dense_row(t) : 0;
      for (int n = threadIdx.x / 4; n < TILE_N; n += THREADS / 4) {
        const bool valid = t < terms && n < columns;
        cp_async<16>(right + n * K_PITCH + piece * 16, valid ? panel + k + n * col : panel, valid);
      }
    } else if constexpr (LAYOUT == Layout::bytes) {
      load_right_bytes(right, start);
    } else {
      const bool by_column = row < col;
      for (int e = threadIdx.x; e < TILE_K * TILE_N; e += THREADS) {
        const int k = by_column ? e % TILE_K : e / TILE_N;
        const int n = by_column ? e / TILE_K : e % TILE_N;
        const long long t = start + k;
        reinterpret_cast<T*>(right + n * K_PITCH)[k] =
            t < terms && n < columns ? panel[dense_row(t) * row + n * col] : zero_of<T>();
      }
    }
  }

  // A warp takes 8 x 4 squares of 4 x 4 bytes: 32 contiguous bytes of each of 16 rows.
  __device__ __forceinline__ void load_right_bytes(unsigned char* right, long long start) const {
    constexpr int SQUARES = (TILE_N / 4) * (TILE_K / 4);
    for (int e = threadIdx.x; e < SQUARES; e += THREADS) {
      const int n = (e % 8 + e / 32 % (TILE_N / 32) * 8) * 4;
      const int k = (e / 8 % 4 + e / TILE_N * 4) * 4;
      unsigned line[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const long long t = start + k + i;
        line[i] = t < terms ? four_bytes(panel + dense_row(t) * row + n, columns - n) : 0;
      }
      // line[i] holds row i; turned[j] is to hold column j.
      const unsigned low01 = __byte_perm(line[0], line[1], 0x5140);
      const unsigned low23 = __byte_perm(line[2], line[3], 0x5140);
      const unsigned high01 = __byte_perm(line[0], line[1], 0x7362);
      const unsigned high23 = __byte_perm(line[2], line[3], 0x7362);
      const unsigned turned[4] = {
          __byte_perm(low01, low23, 0x5410), __byte_perm(low01, low23, 0x7632),
          __byte_perm(high01, high23, 0x5410), __byte_perm(high01, high23, 0x7632)};
#pragma unroll
      for (int j = 0; j < 4; ++j)
        *reinterpret_cast<unsigned*>(right + (n + j) * K_PITCH + k) = turned[j];
    }
  }

  // The first `count` of four bytes, the others zero.
  static __device__ __forceinline__ unsigned four_bytes(const T* from, int count) {
    if (count >= 4) return *reinterpret_cast<const unsigned*>(from);
    unsigned word = 0;
    for (int i = 0; i < count; ++i)
      word |= unsigned(reinterpret_cast<const unsigned char*>(from)[i]) << (8 * i);
    return word;
  }
};

// The outputs of one warp, as the mma's d fragments (ptx/mma.cuh).
struct WarpTile {
  A sum[WARP_M / 16][WARP_N / 8][4];
  int lane, row, col;  // row and col: where the warp's part starts in the tile

  __device__ __forceinline__ WarpTile() {
    const int warp = threadIdx.x / 32;
    lane = threadIdx.x % 32;
    row = warp / WARPS_N * WARP_M;
    col = warp % WARPS_N * WARP_N;
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
      for (int j = 0; j < WARP_N / 8; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) sum[i][j][r] = A(0);
  }

  // Add the products of one slice: two steps of 32 bytes of k.
  __device__ __forceinline__ void multiply(const unsigned char* left, const unsigned char* right) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      unsigned a[WARP_M / 16][4];
#pragma unroll
      for (int i = 0; i < WARP_M / 16; ++i) {
        ldmatrix_x4(a[i], left + (row + 16 * i + lane % 16) * K_PITCH + step * 32 + lane / 16 * 16);
        round_operands(a[i]);
      }
#pragma unroll
      for (int j = 0; j < WARP_N / 16; ++j) {
        unsigned b[4];  // columns 16j .. 16j + 7 in b[0], b[1]; the next eight in b[2], b[3]
        load_columns(b, right, col + 16 * j, step);
        round_operands(b);
        const unsigned first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i) {
          mma<T>(sum[i][2 * j], a[i], first);
          mma<T>(sum[i][2 * j + 1], a[i], second);
        }
      }
    }
  }

  __device__ __forceinline__ void load_columns(unsigned (&b)[4], const unsigned char* right, int n,
                                               int step) const {
    if constexpr (LAYOUT != Layout::rows) {
      n += lane / 16 * 8 + lane % 8;
      ldmatrix_x4(b, right + n * K_PITCH + step * 32 + lane / 8 % 2 * 16);
    } else if constexpr (SIZE == 2) {
      n += lane / 16 * 8;
      ldmatrix_x4_trans(b, right + (step * 16 + lane % 16) * N_PITCH + n * 2);
    } else {
      const unsigned char* at = right + (step * 8 + lane % 4) * N_PITCH + (n + lane / 4) * 4;
#pragma unroll
      for (int r = 0; r < 4; ++r)
        b[r] = *reinterpret_cast<const unsigned*>(at + r % 2 * 4 * N_PITCH + r / 2 * 32);
    }
  }

  // float32 becomes TF32 by rounding, where the tensor cores would cut off.
  static __device__ __forceinline__ void round_operands(unsigned (&words)[4]) {
    if constexpr (SIZE == 4) {
#pragma unroll
      for (int r = 0; r < 4; ++r) words[r] = to_tf32(__uint_as_float(words[r]));
    }
  }

  // Call write(m, n, sum) for the warp's outputs within rows x columns of the tile. They pass
  // through `strips` of shared memory, sixteen rows at a time, so that neighbouring lanes write
  // neighbouring outputs, and so that the code of the epilogue stands there once.
  template <typename Write>
  __device__ __forceinline__ void finish(unsigned char* strips, int rows, int columns,
                                         bool columns_apart, Write write) const {
    A* strip = reinterpret_cast<A*>(strips) + threadIdx.x / 32 * 16 * STRIP_PITCH;
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) {
#pragma unroll
      for (int j = 0; j < WARP_N / 8; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          strip[(lane / 4 + r / 2 * 8) * STRIP_PITCH + 8 * j + lane % 4 * 2 + r % 2] = sum[i][j][r];
      __syncwarp();
#pragma unroll 1
      for (int e = lane; e < 16 * WARP_N; e += 32) {
        const int m = columns_apart ? e % 16 : e / WARP_N;
        const int n = columns_apart ? e / 16 : e % WARP_N;
        if (row + 16 * i + m < rows && col + n < columns)
          write(row + 16 * i + m, col + n, strip[m * STRIP_PITCH + n]);
      }
      __syncwarp();
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_addmm_sm80(const __grid_constant__ View out, const __grid_constant__ View indptr,
                   const __grid_constant__ View indices, const __grid_constant__ View data,
                   const __grid_constant__ View dense, const __grid_constant__ Batch batch,
                   const __grid_constant__ Sizes sizes,
                   const __grid_constant__ Epilogue<A> epilogue) {
  extern __shared__ __align__(16) unsigned char stages[];

  const int slices = (sizes.bm + TILE_M - 1) / TILE_M;
  const long long row_tiles = sizes.batches * sizes.block_rows * slices;
  const long long column_tiles = (sizes.columns + TILE_N - 1) / TILE_N;

  // A thread block takes several tiles only where they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < row_tiles * column_tiles; tile += gridDim.x) {
    const long long x = tile % row_tiles;
    const long long first_col = tile / row_tiles * TILE_N;
    const int first_row = int(x % slices) * TILE_M;  // within the block row
    const long long block_row = x / slices % sizes.block_rows;
    const long long b = x / slices / sizes.block_rows;

    Operands operands;
    operands.rows = min(TILE_M, sizes.bm - first_row);
    operands.columns = int(min((long long)TILE_N, sizes.columns - first_col));
    operands.terms = 0;
    if (indptr.ptr) {
      const INDEX* starts = batch_ptr<const INDEX>(indptr, batch, b) + block_row * indptr.row;
      operands.first_block = starts[0];
      operands.terms = (long long)(starts[indptr.row] - starts[0]) * BK;
      operands.column_of = batch_ptr<const INDEX>(indices, batch, b);
      operands.column_step = indices.row;
      operands.block = batch_ptr<const T>(data, batch, b) + (long long)first_row * BK;
      operands.block_elements = sizes.bm * BK;
      operands.panel = batch_ptr<const T>(dense, batch, b) + first_col * dense.col;
      operands.row = dense.row;
      operands.col = dense.col;
    }

    // STAGES - 1 slices are under way while one is multiplied. Each step commits one group of
    // copies, an empty one at the end, so that the count of groups to wait for stays the same.
    WarpTile outputs;
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
      outputs.multiply(stage, stage + LEFT_BYTES);
    }
    cp_async_wait<0>();
    __syncthreads();  // nobody reads the slices any longer

    const Finish<A, OUT> finish(epilogue, batch, b);
    OUT* out_matrix = batch_ptr<OUT>(out, batch, b);
    const long long top = block_row * sizes.bm + first_row;
    auto write = [&](int m, int n, A sum) {
      out_matrix[element_offset(out, top + m, first_col + n)] = finish(sum, top + m, first_col + n);
    };
    outputs.finish(stages, operands.rows, operands.columns, out.row < out.col, write);
    __syncthreads();  // before the next tile's slices come
  }
}
