// A pipeline of stages in shared memory that slices of a product's operands pass through, where the
// threads that multiply them also copy them, by cp.async; and how threads share such copies.
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

// STAGE_COUNT - 1 slices are in flight while one is multiplied, so the next one goes where the last
// one was read. Behind STAGE_COUNT - 1 iterations that only copy, an iteration is:
//
//   pipeline.wait();
//   start to copy the next slice to pipeline.stage
//   pipeline.advance();
//   multiply the slice in pipeline.stage
//   ...
//   pipeline.drain();
template <int STAGE_COUNT, int STAGE_BYTES>
struct CpAsyncPipeline {
  unsigned stage = 0, next = STAGE_BYTES;  // bytes from the first one on

  // Each iteration commits one group of copies, an empty one at the end, so that the count of
  // groups to wait for stays the same.
  __device__ __forceinline__ void advance() {
    cp_async_commit();
    stage = next;
    next = next == (STAGE_COUNT - 1) * STAGE_BYTES ? 0 : next + STAGE_BYTES;
  }
  // Wait until the slice in the next stage has arrived, and that in this one is no longer read.
  __device__ __forceinline__ void wait() const {
    cp_async_wait<STAGE_COUNT - 2>();
    __syncthreads();
  }
  // Wait until nothing is copied to the stages or read from them any more.
  __device__ __forceinline__ void drain() const {
    cp_async_wait<0>();
    __syncthreads();
  }
};

// Call copy(x, y, c) for a thread's share of WIDTH x HEIGHT copies to a tile, at x and y + c.
// Neighbouring threads take neighbouring x. Each thread has one x and one y, and c is a
// compile-time constant: so most of a copy's addresses are loop invariants.
template <int THREADS, int WIDTH, int HEIGHT, typename Copy>
__device__ __forceinline__ void share_copies(Copy copy) {
  constexpr int DOWN = THREADS / WIDTH;
  static_assert(THREADS % WIDTH == 0, "whole rows of threads");
  const int x = threadIdx.x % WIDTH, y = threadIdx.x / WIDTH;
#pragma unroll
  for (int i = 0; i < HEIGHT; i += DOWN)
    if (HEIGHT % DOWN == 0 || y + i < HEIGHT) copy(x, y, i);
}

}  // namespace sparsegpu
