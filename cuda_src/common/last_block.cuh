// The last thread block of a grid, or of a part of it, to finish its work.
#pragma once

namespace sparsegpu {

// Whether this is the last of so many thread blocks to get here; then what the others wrote is
// visible in L2. `done` was zero before the launch.
__device__ __forceinline__ bool last_done(unsigned* done, unsigned blocks) {
  __threadfence();
  __syncthreads();
  const bool last = threadIdx.x == 0 && atomicAdd(done, 1u) == blocks - 1;
  return __syncthreads_or(last);
}

}  // namespace sparsegpu
