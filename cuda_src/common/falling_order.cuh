// Numbers in the order of falling values, matrix by matrix; the lower number first where values
// agree.
#pragma once

// Writes number i to its place, which is how many come before it; a warp does that.
__device__ __forceinline__ void put_in_order(int* order, const int* values, int i, int per_matrix) {
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

// Whether all other thread blocks of the grid are done, what they wrote to be seen in the L2;
// `done` was zero before the launch.
__device__ __forceinline__ bool last_done(unsigned* done) {
  __threadfence();
  __syncthreads();
  const bool last = threadIdx.x == 0 && atomicAdd(done, 1u) == gridDim.x - 1;
  return __syncthreads_or(last);
}
