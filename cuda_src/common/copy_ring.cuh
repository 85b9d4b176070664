// The ring of stages in shared memory that slices of a product's operands pass through, where the
// threads that multiply them also copy them, by cp.async. -DSTAGES.
//
// STAGES - 1 slices are under way while one is multiplied, so the next one goes where the last one
// was read. Behind STAGES - 1 turns that only copy, a turn is:
//
//   ring.wait();
//   start to copy the next slice to ring.stage
//   ring.advance();
//   multiply the slice in ring.stage
//   ...
//   ring.drain();
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

template <int STAGE_BYTES>
struct CopyRing {
  unsigned stage = 0, next = STAGE_BYTES;  // bytes from the first one on

  // Each turn commits one group of copies, an empty one at the end, so that the count of groups to
  // wait for stays the same.
  __device__ __forceinline__ void advance() {
    cp_async_commit();
    stage = next;
    next = next == (STAGES - 1) * STAGE_BYTES ? 0 : next + STAGE_BYTES;
  }
  // Wait until the slice in the next stage is here, and that in this one is no longer read.
  __device__ __forceinline__ void wait() const {
    cp_async_wait<STAGES - 2>();
    __syncthreads();
  }
  // Wait until nothing is copied to the stages or read from them any more.
  __device__ __forceinline__ void drain() const {
    cp_async_wait<0>();
    __syncthreads();
  }
};

}  // namespace sparsegpu
