// A tile of a 2:4 product by mma.sp: how slices of its operands lie in shared memory, and their
// products. semi_structured_addmm_sm80.cu says what a slice is, and each kernel how it is loaded.
#pragma once

#include "common/dense_tile_cp_async.cuh"
#include "common/output_matrix.cuh"
#include "common/semi_structured.cuh"
#include "ptx/mma_sp.cuh"

namespace sparsegpu {

// HEIGHT x WIDTH outputs of four warps, from operands of type E; `dense` lies as LAYOUT says.
template <typename E, Layout LAYOUT, int HEIGHT, int WIDTH, int STAGE_COUNT>
struct SparseMmaTile {
  typedef typename Acc<E>::type A;
  static constexpr int SIZE = sizeof(E), VECTOR = 16 / SIZE;
  static constexpr int MMA_STEPS = 2;                // mma.sp steps of a slice
  static constexpr int MMA_K = MmaSp<E>::k;          // 64 bytes of dense k
  static constexpr int SLICE_K = MMA_STEPS * MMA_K;  // dense k of a slice
  static constexpr int THREADS = 128, WARPS_DOWN = HEIGHT == 32 ? 1 : 2;
  static constexpr int WARPS_ACROSS = 4 / WARPS_DOWN;
  static constexpr int WARP_M = HEIGHT / WARPS_DOWN, WARP_N = WIDTH / WARPS_ACROSS;
  static constexpr int META_ROWS = SIZE == 1 ? 16 : 32;  // rows that 32 words of metadata describe
  static constexpr int META_WORDS = WARP_M / META_ROWS;  // words of a lane for one step
  // Thread blocks of a multiprocessor: wide tiles have more sums, 8-bit types more metadata.
  static constexpr int MIN_BLOCKS = WARP_M * WARP_N > 2048 || SIZE == 1 ? 2 : 3;
  static_assert(WARP_M % 32 == 0 && WARP_N % 8 == 0, "a warp multiplies 32 x 8 outputs at a time");

  // The two tiles of a slice.
  typedef DenseTileCpAsync<E, LAYOUT, WIDTH, SLICE_K, THREADS> Right;
  typedef OperandTile<E, HEIGHT, SLICE_K / 2, true> Left;
  static constexpr int LEFT_BYTES = Left::BYTES;
  static constexpr int STAGE_BYTES = LEFT_BYTES + Right::Tile::BYTES;  // the host computes it, too

  // The sums are staged where the slices were, so that the outputs are written in the order in
  // which they lie in memory. An odd pitch: rows and columns are both read without bank conflicts.
  static constexpr int SUM_PITCH = WIDTH + 1;
  static_assert(HEIGHT * SUM_PITCH * 4 <= STAGE_COUNT * STAGE_BYTES,
                "the sums fit where the stages were");

  // Metadata of rows beyond M: a code that is legal in every format.
  static constexpr u32 ABSENT_META = 0x44444444u;

  typedef WarpOutputs<A, WARP_M, WARP_N, WARPS_ACROSS> Outputs;

  // Copy this thread's vectors of HEIGHT packed rows, `pitch` elements apart, of which there are
  // `rows`; `from` is its vector (number threadIdx.x % 4) of its first row (number threadIdx.x /
  // 4).
  static __device__ __forceinline__ void load_packed(unsigned char* left, const E* from,
                                                     long long pitch, int rows) {
    share_copies<THREADS, 4, HEIGHT>([&](int vector, int y, int c) {
      cp_async<16>(left + Left::offset(y + c, vector * VECTOR), from + c * pitch, y + c < rows);
    });
  }

  // The metadata words of this lane for the steps of a slice, of which `left` exist, and the warp
  // whose rows start at `first`; `from` are the lane's words of the first step and these rows, a
  // step has `pitch` words, and the tile has `rows` rows.
  static __device__ __forceinline__ void load_meta(u32 (&words)[MMA_STEPS][META_WORDS],
                                                   const u32* from, long long pitch, int first,
                                                   int rows, int left) {
#pragma unroll
    for (int s = 0; s < MMA_STEPS; ++s)
#pragma unroll
      for (int i = 0; i < META_WORDS; ++i)
        words[s][i] =
            first + i * META_ROWS < (s < left ? rows : 0) ? from[s * pitch + i * 32] : ABSENT_META;
  }

  // d += a @ b for the 16 rows number `i` of a warp. 16-bit metadata: the words of 32 rows serve
  // two products, the upper 16 rows through lanes 0, 1 of each four (selector 0), the lower through
  // 2, 3.
  static __device__ __forceinline__ void sparse_mma(A (&d)[4], const u32 (&a)[4], const u32 (&b)[4],
                                                    const u32 (&meta)[META_WORDS], int i) {
    if constexpr (SIZE != 1) {
      if (i % 2 == 0)
        MmaSp<E>::template run<0>(d, a, b, meta[i / 2]);
      else
        MmaSp<E>::template run<1>(d, a, b, meta[i / 2]);
    } else if constexpr (PROMOTED<E>) {
      A partial[4] = {};
      MmaSp<E>::template run<0>(partial, a, b, meta[i]);
#pragma unroll
      for (int r = 0; r < 4; ++r) d[r] += partial[r];
    } else {
      MmaSp<E>::template run<0>(d, a, b, meta[i]);
    }
  }

  // Add the products of one slice.
  static __device__ __forceinline__ void multiply_slice(Outputs& outputs, const unsigned char* left,
                                                        const unsigned char* right,
                                                        const u32 (&meta)[MMA_STEPS][META_WORDS]) {
    const FragmentLoader<Left, SixteenRows> rows(left, outputs.row);
    const FragmentLoader<typename Right::Tile, EightColumns> columns(right, outputs.col);
#pragma unroll
    for (int s = 0; s < MMA_STEPS; ++s) {
      u32 a[WARP_M / 16][4];
#pragma unroll
      for (int i = 0; i < WARP_M / 16; ++i) rows.load(a[i], 16 * i, 2 * s);
#pragma unroll
      for (int j = 0; j < WARP_N / 8; ++j) {
        u32 b[4];
        columns.load(b, 8 * j, 4 * s);
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i) sparse_mma(outputs.sum[i][j], a[i], b, meta[s], i);
      }
    }
  }

  // Multiply a tile's `steps` steps: operands.load(stage, left) starts to copy the next slice, and
  // operands.load_meta(words, first_row, left) loads its metadata; `left` steps are left from there
  // on.
  template <typename Operands>
  static __device__ __forceinline__ void multiply(Outputs& outputs, unsigned char* stages,
                                                  int steps, Operands& operands) {
    CpAsyncPipeline<STAGE_COUNT, STAGE_BYTES> pipeline;
    auto load = [&](int left) {
      if (left > 0) operands.load(stages + pipeline.stage, left);
      pipeline.advance();
    };
    u32 words[MMA_STEPS][META_WORDS], next[MMA_STEPS][META_WORDS];
    operands.load_meta(words, outputs.row, steps);
#pragma unroll 1
    for (int slice = 0; slice < STAGE_COUNT - 1; ++slice) load(steps - slice * MMA_STEPS);
#pragma unroll 1
    for (; steps > 0; steps -= MMA_STEPS) {
      operands.load_meta(next, outputs.row, steps - MMA_STEPS);
      pipeline.wait();
      load(steps - (STAGE_COUNT - 1) * MMA_STEPS);
      multiply_slice(outputs, stages + pipeline.stage, stages + pipeline.stage + LEFT_BYTES, words);
#pragma unroll
      for (int s = 0; s < MMA_STEPS; ++s)
#pragma unroll
        for (int i = 0; i < META_WORDS; ++i) words[s][i] = next[s][i];
    }
    pipeline.drain();
  }

  // Finish and write a tile's sums, `rows` x `columns` of them from (top, first_col) of matrix `b`
  // of the output on; they are staged where the slices were.
  template <typename Op>
  static __device__ __forceinline__ void write(const Outputs& outputs, unsigned char* stages,
                                               const View& out, const Batch& batch,
                                               const typename Op::Args& epilogue, long long b,
                                               long long top, long long first_col, int rows,
                                               int columns) {
    A* sums = reinterpret_cast<A*>(stages);
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) {
      A* corner = sums + (outputs.row + 16 * i) * SUM_PITCH + outputs.col;
      outputs.sixteen_rows(i, [&](int m, int n, A sum) { corner[m * SUM_PITCH + n] = sum; });
    }
    __syncthreads();
    const OutputMatrix<Op> matrix(out, batch, epilogue, b);
    const bool by_row = out.col < out.row;
#pragma unroll 1
    for (int e = threadIdx.x; e < HEIGHT * WIDTH; e += THREADS) {
      const int m = by_row ? e / WIDTH : e % HEIGHT;
      const int n = by_row ? e % WIDTH : e / HEIGHT;
      if (m < rows && n < columns) matrix.store(sums[m * SUM_PITCH + n], top + m, first_col + n);
    }
    __syncthreads();  // before the next tile's slices arrive
  }
};

}  // namespace sparsegpu
