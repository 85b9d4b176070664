// The products of a stage in the gradients of attention through wgmma. Operands in shared memory
// are panels of 64 columns, a line of 128 bytes for each row.
#pragma once

#include "common/types.cuh"
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
    wgmma<E, false, false>(acc, smem_further(a, panel * OwnRows + inside),
                           smem_further(b, panel * OTHER_ROWS + inside));
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
  for (int k = 0; k < K; ++k)
    wgmma<E, true>(sums, numbers[k], smem_further(b, 16 * k * LINE_BYTES));
  wgmma_commit();
}

}  // namespace sparsegpu
