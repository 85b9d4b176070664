// The sums of a warp in bsr_addmm_groups.cu: rows of blocks are what mma.sync calls columns of b,
// columns of dense are rows of a. Included behind the constants of that source.
#pragma once

#include "ptx/mma.cuh"

namespace sparsegpu {

// The outputs of one warp: eight rows by sixteen columns in an mma's d, turned round.
struct Outputs {
  static constexpr int EIGHTS = WARP_M / 8, SIXTEENS = WARP_N / 16;
  static constexpr int BLOCKS = WARP_M < SLICE_M ? 1 : WARP_M / SLICE_M;  // of a step
  static constexpr int BLOCK_EIGHTS = WARP_M / BLOCKS / 8;
  static constexpr int AT_ONCE = STEP_K < 32 ? STEP_K : 32;  // terms in registers
  static constexpr int DEPTHS = (AT_ONCE + 15) / 16;
  f32 sum[EIGHTS][SIXTEENS][4];
  int row, col;                        // where the warp's part starts in the tile
  unsigned first_block;                // of its rows
  unsigned columns, rows, short_rows;  // what this lane gives ldmatrix, of the first stage

  __device__ __forceinline__ Outputs(const unsigned char* stages) {
    const int warp = threadIdx.x / 32;
    row = warp / WARPS_N * WARP_M;
    col = warp % WARPS_N * WARP_N;
    const int lane = threadIdx.x % 32, r = lane / 8, l = lane % 8;
    const unsigned left = shared_address(stages), right = left + LEFT_BYTES;
    const int line = SixteenRows::line(r), piece = SixteenRows::piece(r);
    columns = kept(right + (BY_ROW ? RightLines::place(piece * 8 + l, (col + line) / 8)
                                   : RightLines::place(col + line + l, piece)));
    rows =
        kept(left + LeftLines::place(row + SixteenColumns::line(r) + l, SixteenColumns::piece(r)));
    short_rows = kept(left + LeftLines::place(row + r % 2 * 8 + l, 0));
    first_block = kept(row / SLICE_M);
#pragma unroll
    for (int i = 0; i < EIGHTS; ++i)
#pragma unroll
      for (int j = 0; j < SIXTEENS; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) sum[i][j][r] = 0.0f;
  }

  // Add the products of one stage; `present` begins with the warp's first block.
  __device__ __forceinline__ void multiply(unsigned stage,
                                           const unsigned (&present)[Agenda::WORDS]) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if (SLOTS > 1 && !any_of(present, step)) continue;  // nor is the last stage full
#pragma unroll
      for (int first = 0; first < STEP_K; first += AT_ONCE) {
        const int depths = min(DEPTHS, (STEP_K - first + 15) / 16);  // known once it is unrolled
        unsigned a[DEPTHS][SIXTEENS][4];
#pragma unroll
        for (int d = 0; d < depths; ++d)
#pragma unroll
          for (int j = 0; j < SIXTEENS; ++j)
            load_columns(a[d][j], columns + stage, 16 * j, (step * STEP_K + first) / 8 + 2 * d,
                         STEP_K - first - 16 * d >= 16);
#pragma unroll
        for (int r = 0; r < BLOCKS; ++r) {
          const int slot = step * GROUP + r;
          if (SLOTS > 1 && BLOCKS > 1 && !(present[slot / 32] >> slot % 32 & 1)) continue;
          // The next sixteen rows are read before these are multiplied.
          constexpr int PAIRS = (BLOCK_EIGHTS + 1) / 2;
          unsigned b[2][4];
          auto load_rows = [&](int q) {
            const int d = q / PAIRS, i = q % PAIRS * 2;
            const int line = slot * SLICE_M + 8 * i, piece = first / 8 + 2 * d;
            const bool two = i + 1 < BLOCK_EIGHTS;
            if (STEP_K - first - 16 * d >= 16)
              load_sixteen(b[q % 2], LeftLines::later(rows + stage, line, piece), two);
            else
              load_eight(b[q % 2], LeftLines::later(short_rows + stage, line, piece), two);
          };
          load_rows(0);
#pragma unroll
          for (int q = 0; q < depths * PAIRS; ++q) {
            if (q + 1 < depths * PAIRS) load_rows(q + 1);
            const int d = q / PAIRS, i = q % PAIRS * 2;
            multiply_pair(a[d], b[q % 2], r * BLOCK_EIGHTS + i, i + 1 < BLOCK_EIGHTS,
                          STEP_K - first - 16 * d >= 16);
          }
        }
      }
    }
  }

  // What the warp's rows and columns have of sixteen terms, where a stage is one block.
  struct Depth {
    unsigned a[SIXTEENS][4], b[(EIGHTS + 1) / 2][4];
  };
  __device__ __forceinline__ void read(Depth& depth, int d, unsigned stage) const {
#pragma unroll
    for (int j = 0; j < SIXTEENS; ++j)
      load_columns(depth.a[j], columns + stage, 16 * j, 2 * d, true);
#pragma unroll
    for (int i = 0; i < EIGHTS; i += 2)
      load_sixteen(depth.b[i / 2], LeftLines::later(rows + stage, 8 * i, 2 * d), i + 1 < EIGHTS);
  }
  __device__ __forceinline__ void multiply(const Depth& depth) {
#pragma unroll
    for (int i = 0; i < EIGHTS; i += 2)
      multiply_pair(depth.a, depth.b[i / 2], i, i + 1 < EIGHTS, true);
  }

  // Whether any block of a step is there.
  static __device__ __forceinline__ bool any_of(const unsigned (&present)[Agenda::WORDS],
                                                int step) {
    unsigned any = 0;
#pragma unroll
    for (int slot = step * GROUP; slot < step * GROUP + BLOCKS; ++slot)
      any |= present[slot / 32] & 1u << slot % 32;
    return any != 0;
  }

  // Bring sixteen columns of dense, and sixteen terms or eight.
  static __device__ __forceinline__ void load_columns(unsigned (&a)[4], unsigned at, int line,
                                                      int piece, bool sixteen) {
    at = BY_ROW ? RightLines::later(at, piece * 8, line / 8) : RightLines::later(at, line, piece);
    unsigned two[2];
    if (sixteen) {
      BY_ROW ? ldmatrix_x4_trans(a, at) : ldmatrix_x4(a, at);
    } else {
      BY_ROW ? ldmatrix_x2_trans(two, at) : ldmatrix_x2(two, at);
      a[0] = two[0], a[1] = two[1];
    }
  }

  // Bring eight rows of a block, or two times eight, and sixteen terms or eight.
  static __device__ __forceinline__ void load_sixteen(unsigned (&b)[4], unsigned at, bool two) {
    if (two) {
      ldmatrix_x4(b, at);
    } else {
      unsigned words[2];
      ldmatrix_x2(words, at);
      b[0] = words[0], b[1] = words[1];
    }
  }
  static __device__ __forceinline__ void load_eight(unsigned (&b)[4], unsigned at, bool two) {
    if (two) {
      unsigned words[2];
      ldmatrix_x2(words, at);
      b[0] = words[0], b[2] = words[1];
    } else {
      ldmatrix_x1(b[0], at);
    }
  }

  // Multiply them by sixteen columns at a time.
  __device__ __forceinline__ void multiply_pair(const unsigned (&a)[SIXTEENS][4],
                                                const unsigned (&b)[4], int eight, bool two,
                                                bool sixteen) {
#pragma unroll
    for (int j = 0; j < SIXTEENS; ++j) {
      if (sixteen) {
        mma<T>(sum[eight][j], a[j], {b[0], b[1]});
        if (two) mma<T>(sum[eight + 1][j], a[j], {b[2], b[3]});
      } else {
        mma_half<T>(sum[eight][j], {a[j][0], a[j][1]}, b[0]);
        if (two) mma_half<T>(sum[eight + 1][j], {a[j][0], a[j][1]}, b[2]);
      }
    }
  }

  // Call write(m, n, sums) for eight neighbouring outputs of a row, or write_one(m, n, sum).
  template <typename Write, typename WriteOne>
  __device__ __forceinline__ void finish(unsigned char* strips, bool in_pieces, bool by_column,
                                         Write write, WriteOne write_one) const {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    f32* strip = reinterpret_cast<f32*>(strips) + threadIdx.x / 32 * (STRIP_ROWS * STRIP_PITCH);
#pragma unroll
    for (int top = 0; top < WARP_M; top += STRIP_ROWS) {
      constexpr int STRIP_EIGHTS = STRIP_ROWS / 8;
#pragma unroll
      for (int i = 0; i < STRIP_EIGHTS; ++i)
#pragma unroll
        for (int j = 0; j < SIXTEENS; ++j)
#pragma unroll
          for (int r = 0; r < 4; ++r)
            if (top + 8 * i < WARP_M)
              strip[(8 * i + 2 * t + r % 2) * STRIP_PITCH + 16 * j + g + r / 2 * 8] =
                  sum[top / 8 + i][j][r];
      __syncwarp();
      const int height = min(STRIP_ROWS, WARP_M - top);
      if (in_pieces) {
#pragma unroll 1
        for (int e = lane; e < height * (WARP_N / 8); e += 32) {
          const int m = e / (WARP_N / 8), n = e % (WARP_N / 8) * 8;
          write(row + top + m, col + n, strip + m * STRIP_PITCH + n);
        }
      } else {
#pragma unroll 1
        for (int e = lane; e < height * WARP_N; e += 32) {
          const int m = by_column ? e % height : e / WARP_N;
          const int n = by_column ? e / height : e % WARP_N;
          write_one(row + top + m, col + n, strip[m * STRIP_PITCH + n]);
        }
      }
      __syncwarp();
    }
  }
};

}  // namespace sparsegpu
