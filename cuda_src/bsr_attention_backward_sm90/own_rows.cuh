// A warp's own rows in the gradients of attention through wgmma: their way to the L2, the numbers
// of its queries, and the store of their gradient.
#pragma once

#include "bsr_attention_backward_sm90/stage_weights.cuh"
#include "common/vector16.cuh"
#include "ptx/mma.cuh"
#include "ptx/prefetch.cuh"
#include "ptx/st_vector.cuh"

namespace sparsegpu {

// Have rows of a head brought to the L2, as all lanes of a warp do.
template <typename E>
__device__ __forceinline__ void prefetch_rows(const BatchIndex& at, const View& operand, int first,
                                              int rows, int columns) {
  constexpr int LINE = 128 / sizeof(E);
  const E* const from = at.pointer<const E>(operand);
#pragma unroll 1
  for (int row = threadIdx.x % 32; row < rows; row += 32)
#pragma unroll 1
    for (int c = 0; c < columns; c += LINE) prefetch_l2(from + (first + row) * operand.row + c);
}

// The sum of the products of row g of `first` with row g of `second`, and that of rows g + 8, up to
// Width columns, a multiple of eight; `lines` and `others` are those rows. All are on their way
// before the first one is needed. Tensor cores multiply each row with eight; that is less work than
// to widen every number.
template <int Width, typename E>
__device__ __forceinline__ void dot_rows(float (&sums)[2], const E* const (&lines)[2],
                                         const E* const (&others)[2], int columns) {
  constexpr int PARTS = Width / 32;
  Vec16 x[2][PARTS], y[2][PARTS];
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int c = 0; c < PARTS; ++c) {
      const int column = 32 * c + threadIdx.x % 4 * 8;
      x[r][c] = y[r][c] = {};
      if (column < columns) {
        x[r][c] = *reinterpret_cast<const Vec16*>(lines[r] + column);
        y[r][c] = *reinterpret_cast<const Vec16*>(others[r] + column);
      }
    }
  float products[2][4] = {};
#pragma unroll
  for (int c = 0; c < PARTS; ++c) {
    unsigned a[2][4], b[2][4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      memcpy(a[r], &x[r][c], 16);
      memcpy(b[r], &y[r][c], 16);
    }
#pragma unroll
    for (int i = 0; i < 4; i += 2)  // which columns are called k is the same for both
#pragma unroll
      for (int r = 0; r < 2; ++r)
        mma<E, float>(products[r], {a[0][i], a[1][i], a[0][i + 1], a[1][i + 1]},
                      {b[r][i], b[r][i + 1]});
  }
  // The products of equal rows are in lane g / 2 of the four that have row g.
  const int lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r)
    sums[r] =
        __shfl_sync(~0u, g % 2 ? products[r][2 * r + 1] : products[r][2 * r], lane / 4 * 4 + g / 2);
}

// The power of two that a lane's queries have weights relative to, and their delta.
template <typename E, int Width>
__device__ __forceinline__ void query_numbers(float (&base)[2], float (&delta)[2],
                                              const BatchIndex& at, const int (&queries)[2],
                                              const GradientOperands& of, const View& out,
                                              const View& grad_lse, int columns) {
  const E *lines[2], *others[2];
  float lses[2], changes[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    lines[r] = at.pointer<const E>(of.grad) + queries[r] * of.grad.row;
    others[r] = at.pointer<const E>(out) + queries[r] * out.row;
    lses[r] = at.pointer<const float>(of.lse)[queries[r] * of.lse.row];
  }
  if (grad_lse.ptr != nullptr)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      changes[r] = at.pointer<const float>(grad_lse)[queries[r] * grad_lse.row];
  dot_rows<Width>(delta, lines, others, columns);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    base[r] = base_of(lses[r]);
    delta[r] -= changes[r];
  }
}

// As store_gradient (common/attention_gradients.cuh), for columns by eights. The four lanes of a
// row have a word each of every strip of eight columns. They transpose these, so that each has all
// four of every fourth strip: a quarter of the stores.
template <typename E, int N, typename Tile>
__device__ __forceinline__ unsigned store_rows(E* to, const View& gradient, int columns,
                                               const float (&sums)[N], float scale,
                                               const Tile& tile, const LaneQueries<Tile>& rows) {
  const int lane = threadIdx.x % 32, t = lane % 4;
  unsigned again = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool here = rows.first + lane / 4 + 8 * r < tile.rows;
    E* const line = to + (long long)rows.query[r] * gradient.row + 8 * t;
    float nothing = 0;  // NaN if a sum is not finite
#pragma unroll
    for (int n = 0; n < N / 4; n += 4) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x = sums[4 * (n + i) + 2 * r], y = sums[4 * (n + i) + 2 * r + 1];
        nothing = fmaf(x, 0.0f, fmaf(y, 0.0f, nothing));
        const E pair[2] = {round_to<E>(x * scale), round_to<E>(y * scale)};
        memcpy(&words[i], pair, 4);
      }
      transpose_across_lanes<1>(words);
      if (here && 8 * (n + t) < columns)
        st_vector(line + 8 * n, words[0], words[1], words[2], words[3]);
    }
    const unsigned lanes = __ballot_sync(~0u, here && nothing != 0.0f);
#pragma unroll
    for (int g = 0; g < 8; ++g) again |= (lanes >> 4 * g & 15) != 0 ? 1u << (g + 8 * r) : 0u;
  }
  return again;
}

}  // namespace sparsegpu
