// The ring of stages in shared memory that a product's operands pass through. -DSTAGES.
#pragma once

// As producers and consumers go round it.
struct Ring {
  unsigned full, empty;  // barriers: a stage is filled, a stage has been read
  unsigned turned;       // what its copies brought has been turned (common/turn.cuh)
  int stage = 0, parity = 0;

  __device__ __forceinline__ unsigned filled() const { return full + 8 * stage; }
  __device__ __forceinline__ unsigned ready() const { return turned + 8 * stage; }
  __device__ __forceinline__ unsigned read() const { return empty + 8 * stage; }
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};
