// The sums of a warp in bsr_addmm_groups.cu, with swapped operands: rows of blocks are what
// mma.sync calls columns of b, columns of dense are rows of a.
#pragma once

#include "bsr_addmm_groups/tile_loader.cuh"
#include "common/ceil_div.cuh"
#include "ptx/mma.cuh"

namespace sparsegpu {

// The outputs of one warp: eight rows by sixteen columns in an mma's d, transposed.
template <typename Tile>
struct WarpMmaSwapped {
  typedef typename Tile::Element Element;
  typedef typename Tile::StageBlocks StageBlocks;
  typedef typename Tile::LeftLayout LeftLayout;
  typedef typename Tile::RightLayout RightLayout;
  static constexpr int WARP_M = Tile::WARP_M, WARP_N = Tile::WARP_N, SLOTS = Tile::SLOTS;
  static constexpr int slice_m = Tile::slice_m, group_rows = Tile::group_rows;
  static constexpr int step_k = Tile::step_k, steps = Tile::steps;
  static constexpr bool BY_ROW = Tile::BY_ROW;
  // Outputs are staged in shared memory, some rows of each warp at a time.
  static constexpr int STAGED_ROWS = WARP_M < 32 ? WARP_M : 32;
  static constexpr int STAGING_PITCH = WARP_N + 4;
  static constexpr int STAGING_BYTES = Tile::THREADS / 32 * STAGED_ROWS * STAGING_PITCH * 4;

  static constexpr int EIGHTS = WARP_M / 8, SIXTEENS = WARP_N / 16;
  static constexpr int BLOCKS = WARP_M < slice_m ? 1 : WARP_M / slice_m;  // of a step
  static constexpr int BLOCK_EIGHTS = WARP_M / BLOCKS / 8;
  static constexpr int TERMS_AT_ONCE = step_k < 32 ? step_k : 32;  // terms in registers
  static constexpr int DEPTHS = ceil_div(TERMS_AT_ONCE, 16);
  f32 sum[EIGHTS][SIXTEENS][4];
  int row, col;                        // where the warp's part starts in the tile
  unsigned first_block;                // of its rows
  unsigned columns, rows, short_rows;  // what this lane gives ldmatrix, of the first stage

  __device__ __forceinline__ explicit WarpMmaSwapped(const unsigned char* stages) {
    const int warp = threadIdx.x / 32;
    row = warp / Tile::warps_n * WARP_M;
    col = warp % Tile::warps_n * WARP_N;
    const int lane = threadIdx.x % 32, r = lane / 8, l = lane % 8;
    const unsigned left = shared_address(stages), right = left + Tile::LEFT_BYTES;
    const int line = SixteenRows::line(r), vector = SixteenRows::vector(r);
    columns = computed_once(right + (BY_ROW ? RightLayout::offset(vector * 8 + l, (col + line) / 8)
                                            : RightLayout::offset(col + line + l, vector)));
    rows = computed_once(
        left + LeftLayout::offset(row + SixteenColumns::line(r) + l, SixteenColumns::vector(r)));
    short_rows = computed_once(left + LeftLayout::offset(row + r % 2 * 8 + l, 0));
    first_block = computed_once(row / slice_m);
#pragma unroll
    for (int i = 0; i < EIGHTS; ++i)
#pragma unroll
      for (int j = 0; j < SIXTEENS; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) sum[i][j][r] = 0.0f;
  }

  // Add the products of one stage; `present` begins with the warp's first block.
  __device__ __forceinline__ void multiply(unsigned stage,
                                           const unsigned (&present)[StageBlocks::WORDS]) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if (SLOTS > 1 && !any_of(present, step)) continue;  // nor is the last stage full
#pragma unroll
      for (int first = 0; first < step_k; first += TERMS_AT_ONCE) {
        const int depths = min(DEPTHS, ceil_div(step_k - first, 16));  // a constant once unrolled
        unsigned a[DEPTHS][SIXTEENS][4];
#pragma unroll
        for (int d = 0; d < depths; ++d)
#pragma unroll
          for (int j = 0; j < SIXTEENS; ++j)
            load_columns(a[d][j], columns + stage, 16 * j, (step * step_k + first) / 8 + 2 * d,
                         step_k - first - 16 * d >= 16);
#pragma unroll
        for (int r = 0; r < BLOCKS; ++r) {
          const int slot = step * group_rows + r;
          if (SLOTS > 1 && BLOCKS > 1 && !(present[slot / 32] >> slot % 32 & 1)) continue;
          // The next sixteen rows are loaded before these are multiplied.
          constexpr int PAIRS = ceil_div(BLOCK_EIGHTS, 2);
          unsigned b[2][4];
          auto load_rows = [&](int q) {
            const int d = q / PAIRS, i = q % PAIRS * 2;
            const int line = slot * slice_m + 8 * i, vector = first / 8 + 2 * d;
            const bool two = i + 1 < BLOCK_EIGHTS;
            if (step_k - first - 16 * d >= 16)
              load_sixteen(b[q % 2], LeftLayout::advance(rows + stage, line, vector), two);
            else
              load_eight(b[q % 2], LeftLayout::advance(short_rows + stage, line, vector), two);
          };
          load_rows(0);
#pragma unroll
          for (int q = 0; q < depths * PAIRS; ++q) {
            if (q + 1 < depths * PAIRS) load_rows(q + 1);
            const int d = q / PAIRS, i = q % PAIRS * 2;
            multiply_pair(a[d], b[q % 2], r * BLOCK_EIGHTS + i, i + 1 < BLOCK_EIGHTS,
                          step_k - first - 16 * d >= 16);
          }
        }
      }
    }
  }

  // The fragments of sixteen terms, of the warp's rows and columns, where a stage is one block.
  struct Depth {
    unsigned a[SIXTEENS][4], b[ceil_div(EIGHTS, 2)][4];
  };
  __device__ __forceinline__ void read(Depth& depth, int d, unsigned stage) const {
#pragma unroll
    for (int j = 0; j < SIXTEENS; ++j)
      load_columns(depth.a[j], columns + stage, 16 * j, 2 * d, true);
#pragma unroll
    for (int i = 0; i < EIGHTS; i += 2)
      load_sixteen(depth.b[i / 2], LeftLayout::advance(rows + stage, 8 * i, 2 * d), i + 1 < EIGHTS);
  }
  __device__ __forceinline__ void multiply(const Depth& depth) {
#pragma unroll
    for (int i = 0; i < EIGHTS; i += 2)
      multiply_pair(depth.a, depth.b[i / 2], i, i + 1 < EIGHTS, true);
  }

  // Whether any block of a step is stored.
  static __device__ __forceinline__ bool any_of(const unsigned (&present)[StageBlocks::WORDS],
                                                int step) {
    unsigned any = 0;
#pragma unroll
    for (int slot = step * group_rows; slot < step * group_rows + BLOCKS; ++slot)
      any |= present[slot / 32] & 1u << slot % 32;
    return any != 0;
  }

  // Load sixteen columns of dense, and sixteen terms or eight.
  static __device__ __forceinline__ void load_columns(unsigned (&a)[4], unsigned at, int line,
                                                      int vector, bool sixteen) {
    at = BY_ROW ? RightLayout::advance(at, vector * 8, line / 8)
                : RightLayout::advance(at, line, vector);
    unsigned two[2];
    if (sixteen) {
      BY_ROW ? ldmatrix_x4_trans(a, at) : ldmatrix_x4(a, at);
    } else {
      BY_ROW ? ldmatrix_x2_trans(two, at) : ldmatrix_x2(two, at);
      a[0] = two[0], a[1] = two[1];
    }
  }

  // Load eight rows of a block, or two times eight, and sixteen terms or eight.
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
        mma<Element>(sum[eight][j], a[j], {b[0], b[1]});
        if (two) mma<Element>(sum[eight + 1][j], a[j], {b[2], b[3]});
      } else {
        mma_half<Element>(sum[eight][j], {a[j][0], a[j][1]}, b[0]);
        if (two) mma_half<Element>(sum[eight + 1][j], {a[j][0], a[j][1]}, b[2]);
      }
    }
  }

  // Call write(m, n, sums) for eight neighbouring outputs of a row, or write_one(m, n, sum).
  template <typename Write, typename WriteOne>
  __device__ __forceinline__ void finish(unsigned char* buffers, bool vectorized, bool by_column,
                                         Write write, WriteOne write_one) const {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    f32* staged =
        reinterpret_cast<f32*>(buffers) + threadIdx.x / 32 * (STAGED_ROWS * STAGING_PITCH);
#pragma unroll
    for (int top = 0; top < WARP_M; top += STAGED_ROWS) {
      constexpr int STAGED_EIGHTS = STAGED_ROWS / 8;
#pragma unroll
      for (int i = 0; i < STAGED_EIGHTS; ++i)
#pragma unroll
        for (int j = 0; j < SIXTEENS; ++j)
#pragma unroll
          for (int r = 0; r < 4; ++r)
            if (top + 8 * i < WARP_M)
              staged[(8 * i + 2 * t + r % 2) * STAGING_PITCH + 16 * j + g + r / 2 * 8] =
                  sum[top / 8 + i][j][r];
      __syncwarp();
      const int height = min(STAGED_ROWS, WARP_M - top);
      if (vectorized) {
#pragma unroll 1
        for (int e = lane; e < height * (WARP_N / 8); e += 32) {
          const int m = e / (WARP_N / 8), n = e % (WARP_N / 8) * 8;
          write(row + top + m, col + n, staged + m * STAGING_PITCH + n);
        }
      } else {
#pragma unroll 1
        for (int e = lane; e < height * WARP_N; e += 32) {
          const int m = by_column ? e % height : e / WARP_N;
          const int n = by_column ? e / height : e % WARP_N;
          write_one(row + top + m, col + n, staged[m * STAGING_PITCH + n]);
        }
      }
      __syncwarp();
    }
  }
};

}  // namespace sparsegpu
