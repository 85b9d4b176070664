// How a warp arrives at a barrier of a pipeline (ptx/mbarrier.cuh): after all that its lanes did.
#pragma once

#include "ptx/mbarrier.cuh"

namespace sparsegpu {

// Lane 0 arrives for all lanes, behind __syncwarp. compute-sanitizer's racecheck does not carry
// order through __syncwarp; in the copy of the sources that it looks at this is true
// (tools/trial_runner.py), and every lane arrives.
constexpr bool EACH_LANE_ARRIVES = false;
constexpr int WARP_ARRIVALS = EACH_LANE_ARRIVES ? 32 : 1;

// A caller that has its lane at hand passes it: computing it again costs some kernels instructions.
__device__ __forceinline__ void warp_arrive(unsigned barrier, int lane = threadIdx.x % 32) {
  __syncwarp();
  if (EACH_LANE_ARRIVES || lane == 0) mbarrier_arrive(barrier);
}

}  // namespace sparsegpu
