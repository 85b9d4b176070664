// The products of a stage in the gradients of attention through wgmma. Operands in shared memory
// are panels of 64 columns, a line of 128 bytes for each row.
#pragma once

#include "common/types.cuh"
#include "common/vector16.cuh"
#include "ptx/wgmma.cuh"

namespace sparsegpu {

constexpr int PANEL = 64, LINE_BYTES = 128;

// Start products of a warpgroup's own rows, of a tile of OwnRows, with all rows of a stage:
// acc = own @ other.T. Both have Width columns.
template <typename E, int Width, int OwnRows, int N>
__device__ __forceinline__ void start_dots(float (&acc)[N], unsigned own, unsigned other) {
  constexpr int OTHER_ROWS = 2 * N;
#pragma unroll
  for (int i = 0; i < N; ++i) acc[i] = 0;
  const unsigned long long a = smem_descriptor<LINE_BYTES>(own, 8 * LINE_BYTES, 16);
  const unsigned long long b = smem_descriptor<LINE_BYTES>(other, 8 * LINE_BYTES, 16);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < Width; k += 16) {
    const int panel = k / PANEL * LINE_BYTES, inside = k % PANEL * 2;
    wgmma<E, false, false>(acc, a + (panel * OwnRows + inside) / 16,
                           b + (panel * OTHER_ROWS + inside) / 16);
  }
  wgmma_commit();
}

// Start adding the products of numbers in registers with the rows of a stage:
// sums += numbers @ other.
template <typename E, int N, int K>
__device__ __forceinline__ void start_sums(float (&sums)[N], const unsigned (&numbers)[K][4],
                                           unsigned other) {
  const unsigned long long b =
      smem_descriptor<LINE_BYTES>(other, 8 * LINE_BYTES, 16 * K * LINE_BYTES);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < K; ++k) wgmma<E, true>(sums, numbers[k], b + k * LINE_BYTES);
  wgmma_commit();
}

// The sum of the products of two rows of up to Width columns, a multiple of eight, which four lanes
// share.
template <int Width, typename E>
__device__ __forceinline__ float dot_columns(const E* first, const E* second, int columns) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < Width; c += 32) {
    const int column = c + threadIdx.x % 4 * 8;
    if (column >= columns) continue;
    const Vec16 x = *reinterpret_cast<const Vec16*>(first + column);
    const Vec16 y = *reinterpret_cast<const Vec16*>(second + column);
    E a[8], b[8];
    memcpy(a, &x, 16);
    memcpy(b, &y, 16);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fma_acc(to_acc(a[i]), to_acc(b[i]), sum);
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  return sum + __shfl_xor_sync(~0u, sum, 2);
}

}  // namespace sparsegpu
