// Numbers in descending order of their values, matrix by matrix; of equal values the lower number
// comes first.
#pragma once

namespace sparsegpu {

// Write number i to its place in the order: its rank, the count of those before it. For a warp.
__device__ __forceinline__ void rank_descending(int* order, const int* values, int i,
                                                int per_matrix) {
  const int mine = values[i], first = i / per_matrix * per_matrix;
  int rank = 0;
#pragma unroll 4
  for (int j = first + threadIdx.x % 32; j < first + per_matrix; j += 32) {
    const int other = values[j];
    rank += other > mine || (other == mine && j < i);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) rank += __shfl_xor_sync(~0u, rank, offset);
  if (threadIdx.x % 32 == 0) order[first + rank] = i;
}

}  // namespace sparsegpu
