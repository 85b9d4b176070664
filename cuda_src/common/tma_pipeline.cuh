// A pipeline of stages in shared memory that TMA copies fill and consumer warps read, as one warp
// sees it: the stage that it is at, and the barriers of that stage.
#pragma once

#include "ptx/mbarrier.cuh"

namespace sparsegpu {

template <int Stages>
struct TmaPipeline {
  unsigned full, empty;  // of stage 0: its copies have arrived; its consumers have read it
  unsigned transposed;   // of stage 0: its copies have been transposed (bsr_addmm_sm90.cu)
  int stage = 0, parity = 0;

  template <int Kinds>
  __device__ __forceinline__ explicit TmaPipeline(unsigned long long (&barriers)[Kinds][Stages])
      : full(shared_address(barriers[0])),
        empty(shared_address(barriers[1])),
        transposed(shared_address(barriers[Kinds - 1])) {}

  // Initialise the barriers with the arrivals that each phase waits for. One thread does this, and
  // all synchronise afterwards.
  __device__ __forceinline__ void init(int producers, int consumers, int transposers = 0) const {
    for (int s = 0; s < Stages; ++s) {
      mbarrier_init(full + 8 * s, producers);
      mbarrier_init(empty + 8 * s, consumers);
      if (transposers) mbarrier_init(transposed + 8 * s, transposers);
    }
  }

  __device__ __forceinline__ unsigned full_barrier() const { return full + 8 * stage; }
  __device__ __forceinline__ unsigned transposed_barrier() const { return transposed + 8 * stage; }
  __device__ __forceinline__ unsigned empty_barrier() const { return empty + 8 * stage; }
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) stage = 0, parity ^= 1;
  }
};

}  // namespace sparsegpu
