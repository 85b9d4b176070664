// The ring of stages in shared memory that a product's operands pass through. -DSTAGES.
#pragma once

#include "ptx/mbarrier.cuh"

// As producers and consumers go round it.
struct Ring {
  unsigned full, empty;  // barriers: a stage is filled, a stage has been read
  unsigned turned;       // what its copies brought has been turned (common/turn.cuh)
  int stage = 0, parity = 0;

  template <int KINDS>
  __device__ __forceinline__ explicit Ring(unsigned long long (&barriers)[KINDS][STAGES])
      : full(shared_address(barriers[0])),
        empty(shared_address(barriers[1])),
        turned(shared_address(barriers[KINDS - 1])) {}

  // Make the barriers, told how many arrivals fill a stage, read it and turn it: by one thread,
  // which the others then wait for.
  __device__ __forceinline__ void make(int fillers, int readers, int turners = 0) const {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + 8 * s, fillers);
      mbarrier_init(empty + 8 * s, readers);
      if (turners) mbarrier_init(turned + 8 * s, turners);
    }
  }

  __device__ __forceinline__ unsigned filled() const { return full + 8 * stage; }
  __device__ __forceinline__ unsigned ready() const { return turned + 8 * stage; }
  __device__ __forceinline__ unsigned read() const { return empty + 8 * stage; }
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};
