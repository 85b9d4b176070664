// A tile of a 2:4 product by mma.sp: how slices of its operands lie in shared memory, and their
// products. semi_structured_addmm_sm80.cu says what a slice is, and each source how it is brought.
//
// -DT, -DDENSE, -DTILE_M, -DTILE_N, -DSTAGES, -DOUT, -DEPILOGUE and -DACT are those of the source.
#pragma once

#include "common/copy_ring.cuh"
#include "common/dense_slice.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/semi_structured.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp_tile.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma_sp.cuh"

namespace sparsegpu {

typedef Acc<T>::type A;

constexpr int SIZE = sizeof(T);
constexpr Layout LAYOUT = Layout::DENSE;
constexpr int STEPS = 2;                 // mma.sp steps of a slice
constexpr int STEP_K = MmaSp<T>::k;      // 64 bytes of dense k
constexpr int SLICE_K = STEPS * STEP_K;  // dense k of a slice
constexpr int PIECE = 16 / SIZE;         // elements of a 16-byte copy
constexpr int THREADS = 128, WARPS_M = TILE_M == 32 ? 1 : 2, WARPS_N = 4 / WARPS_M;
constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
constexpr int META_ROWS = SIZE == 1 ? 16 : 32;  // rows that 32 words of metadata describe
constexpr int META_WORDS = WARP_M / META_ROWS;  // words of a lane for one step
// Thread blocks of a multiprocessor: wide tiles have more sums, 8-bit types more metadata.
constexpr int RESIDENT = WARP_M * WARP_N > 2048 || SIZE == 1 ? 2 : 3;
static_assert(WARP_M % 32 == 0 && WARP_N % 8 == 0, "a warp multiplies 32 x 8 outputs at a time");

// The two tiles of a slice (common/warp_tile.cuh).
typedef DenseSlice<LAYOUT, SLICE_K, THREADS> Right;
typedef OperandTile<T, TILE_M, SLICE_K / 2, true> Left;
constexpr int LEFT_BYTES = Left::BYTES;
constexpr int STAGE_BYTES = LEFT_BYTES + Right::Tile::BYTES;  // semi_structured.py knows this

// The sums take the place of the stages at the end, so that the outputs are written in the order
// in which they lie in memory. An odd pitch: rows and columns are both read without conflicts.
constexpr int SUM_PITCH = TILE_N + 1;
static_assert(TILE_M * SUM_PITCH * 4 <= STAGES * STAGE_BYTES, "the sums fit where the stages were");

// What a row beyond M is told: a code that is legal in every format.
constexpr u32 ABSENT_META = 0x44444444u;

// Bring this thread's pieces of TILE_M packed rows, `pitch` elements apart, of which there are
// `rows`; `from` is its piece (number threadIdx.x % 4) of its first row (number threadIdx.x / 4).
__device__ __forceinline__ void bring_packed(unsigned char* left, const T* from, long long pitch,
                                             int rows) {
  share_copies<THREADS, 4, TILE_M>([&](int piece, int y, int c) {
    cp_async<16>(left + Left::place(y + c, piece * PIECE), from + c * pitch, y + c < rows);
  });
}

// The metadata words of this lane for one step and the warp whose rows start at `first`; `from`
// are the lane's words of the step and these rows; the tile has `rows` rows.
__device__ __forceinline__ void load_words(u32 (&words)[META_WORDS], const u32* from, int first,
                                           int rows) {
#pragma unroll
  for (int i = 0; i < META_WORDS; ++i)
    words[i] = first + i * META_ROWS < rows ? from[i * 32] : ABSENT_META;
}

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
  } else if constexpr (PROMOTED<U>) {
    A part[4] = {};
    MmaSp<U>::template run<0>(part, a, b, meta[i]);
#pragma unroll
    for (int r = 0; r < 4; ++r) d[r] += part[r];
  } else {
    MmaSp<U>::template run<0>(d, a, b, meta[i]);
  }
}

typedef WarpTile<A, WARP_M, WARP_N, WARPS_N> Outputs;

// Add the products of one slice.
__device__ __forceinline__ void multiply(Outputs& outputs, const unsigned char* left,
                                         const unsigned char* right,
                                         const u32 (&meta)[STEPS][META_WORDS]) {
  const Fragments<T, Left, SixteenRows> rows(left, outputs.row);
  const Fragments<T, Right::Tile, EightColumns> columns(right, outputs.col);
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
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

// Multiply a tile's `steps` steps: operands.bring(stage, left) starts to bring the next slice, and
// operands.load_meta(words, first_row, left) loads its metadata (absent words behind the last
// step); `left` steps are left from there on.
template <typename Operands>
__device__ __forceinline__ void multiply_slices(Outputs& outputs, unsigned char* stages, int steps,
                                                Operands& operands) {
  CopyRing<STAGE_BYTES> ring;
  auto load = [&](int left) {
    if (left > 0) operands.bring(stages + ring.stage, left);
    ring.advance();
  };
  u32 words[STEPS][META_WORDS], next[STEPS][META_WORDS];
  operands.load_meta(words, outputs.row, steps);
#pragma unroll 1
  for (int slice = 0; slice < STAGES - 1; ++slice) load(steps - slice * STEPS);
#pragma unroll 1
  for (; steps > 0; steps -= STEPS) {
    operands.load_meta(next, outputs.row, steps - STEPS);
    ring.wait();
    load(steps - (STAGES - 1) * STEPS);
    multiply(outputs, stages + ring.stage, stages + ring.stage + LEFT_BYTES, words);
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int i = 0; i < META_WORDS; ++i) words[s][i] = next[s][i];
  }
  ring.drain();
}

// Finish and write a tile's sums, `rows` x `columns` of them from (top, first_col) of matrix `b` of
// the output on; they are laid out where the stages were.
__device__ __forceinline__ void write_outputs(const Outputs& outputs, unsigned char* stages,
                                              const View& out, const Batch& batch,
                                              const KernelEpilogueArgs<A>& epilogue, long long b,
                                              long long top, long long first_col, int rows,
                                              int columns) {
  A* sums = reinterpret_cast<A*>(stages);
#pragma unroll
  for (int i = 0; i < WARP_M / 16; ++i) {
    A* corner = sums + (outputs.row + 16 * i) * SUM_PITCH + outputs.col;
    outputs.sixteen_rows(i, [&](int m, int n, A sum) { corner[m * SUM_PITCH + n] = sum; });
  }
  __syncthreads();
  const KernelEpilogue<A, OUT> finish(epilogue, batch, b);
  OUT* out_matrix = batch_ptr<OUT>(out, batch, b);
  const bool by_row = out.col < out.row;
#pragma unroll 1
  for (int e = threadIdx.x; e < TILE_M * TILE_N; e += THREADS) {
    const int m = by_row ? e / TILE_N : e % TILE_M;
    const int n = by_row ? e % TILE_N : e / TILE_M;
    if (m < rows && n < columns)
      out_matrix[element_offset(out, top + m, first_col + n)] =
          finish(sums[m * SUM_PITCH + n], top + m, first_col + n);
  }
  __syncthreads();  // before the next tile's slices come
}

}  // namespace sparsegpu
