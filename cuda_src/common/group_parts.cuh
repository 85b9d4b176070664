// Parts of a long row group (bsr_addmm_sm90.cu): each writes the sums of its tile to workspace, and
// bsr_addmm_sm90_parts.cu adds them in their order.
//
// Workspace has the sums of a part, slice of tall blocks, matrix and panel of columns one after the
// other; within a tile a warp's fragments of eight columns, four values a lane.
#pragma once

#include "common/types.cuh"

namespace sparsegpu {

// The number of a tile among those of all parts' slices; of as many matrices, of as many columns.
template <int WIDTH>
__device__ __forceinline__ long long part_tile(long long slice, long long batch, long long batches,
                                               long long panel, long long columns) {
  return (slice * batches + batch) * ((columns + WIDTH - 1) / WIDTH) + panel;
}

template <typename A>
struct alignas(4 * sizeof(A)) Four {
  A at[4];
};

// The fragments that a lane of a warp (of WARPS) has of a tile of WIDTH columns. Those of
// neighbouring columns are 32 elements apart.
template <int WIDTH, int WARPS, typename A>
__device__ __forceinline__ Four<A>* part_fragments(A* parts, long long tile, int warp) {
  Four<A>* fragments = reinterpret_cast<Four<A>*>(parts);
  return fragments + (tile * WARPS + warp) * (WIDTH / 8 * 32) + threadIdx.x % 32;
}

template <typename A, int REGISTERS>
__device__ __forceinline__ void write_part(Four<A>* fragments, const A (&sum)[REGISTERS]) {
#pragma unroll
  for (int j = 0; j < REGISTERS / 4; ++j)
    fragments[32 * j] = {sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]};
}

}  // namespace sparsegpu
