// What ends a pass of a solver: the sums of each column over all threads, in a fixed order, and the
// step that the last thread block makes with them.
#pragma once

#include "common/last_block.cuh"
#include "common/warp_reduce.cuh"
#include "solver_pass/column.cuh"

namespace sparsegpu {

// Of a thread block. Thread t has a row of column t % TILE of a tile.
constexpr int THREADS = 256, WARPS = THREADS / 32;

// What other thread blocks of this launch wrote is in L2.
__device__ __forceinline__ f64 from_l2(const f64* at) {
  return __ldcg(at);
}
__device__ __forceinline__ c128 from_l2(const c128* at) {
  return {__ldcg(&at->re), __ldcg(&at->im)};
}

// The first ``count`` sums over the thread block of each column, in the threads below TILE.
template <int TILE, int N, typename W>
__device__ __forceinline__ void add_threads(W (&sums)[N], int count) {
  __shared__ W of_warps[N * WARPS * TILE];
  __syncthreads();
#pragma unroll
  for (int d = 0; d < N; ++d) {
    if (d >= count) break;
#pragma unroll
    for (int mask = 16; mask >= TILE; mask /= 2) sums[d] += shuffle_xor(sums[d], mask);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane < TILE) of_warps[(d * WARPS + warp) * TILE + lane] = sums[d];
  }
  __syncthreads();
  if (threadIdx.x < TILE) {
#pragma unroll
    for (int d = 0; d < N; ++d) {
      if (d >= count) break;
      sums[d] = W(0);
#pragma unroll
      for (int warp = 0; warp < WARPS; ++warp)
        sums[d] += of_warps[(d * WARPS + warp) * TILE + threadIdx.x];
    }
  }
}

// The sums over all thread blocks, in the threads below TILE of the last one to finish; whether
// this is it. ``partials`` has room for count * blocks * TILE; ``done`` is zero before and after.
template <int TILE, int N, typename W>
__device__ __forceinline__ bool add_blocks(W (&sums)[N], int count, W* partials, unsigned* done,
                                           int block, int blocks) {
  const int lane = threadIdx.x % TILE;
  add_threads<TILE>(sums, count);
  if (threadIdx.x < TILE) {
#pragma unroll
    for (int d = 0; d < N; ++d)
      if (d < count) partials[(d * blocks + block) * TILE + lane] = sums[d];
  }
  if (!last_done(done, blocks)) return false;
#pragma unroll
  for (int d = 0; d < N; ++d) {
    if (d >= count) break;
    sums[d] = W(0);
    for (int b = threadIdx.x / TILE; b < blocks; b += THREADS / TILE)
      sums[d] += from_l2(partials + (d * blocks + b) * TILE + lane);
  }
  add_threads<TILE>(sums, count);
  if (threadIdx.x == 0) *done = 0;
  return true;
}

// Make the step of a column and write down what becomes of it (_solver_steps.after_pass).
template <typename Step, typename Pass>
__device__ __forceinline__ void make_step(const Pass& pass, long long column) {
  const long long r = pass.columns;
  const auto numbers = column_of(pass.numbers, r, column);
  u8* const flags = pass.flags + column;
  long long* const counts = pass.counts + column;
  u8 &active = flags[0], &moving = flags[r], &converged = flags[2 * r];
  long long &steps = counts[0], &code = counts[r], &rounds = counts[2 * r];
  if (active) {
    const int became = Step::run(numbers);
    if (became != GOES_ON) {
      moving = became == ITERATED || became == CONVERGED || became == EXHAUSTED;
      converged = became == CONVERGED;
      steps += moving;
      code = moving ? 0 : became;
      active = became == ITERATED && is_finite(numbers[NORM]);
    }
  } else if (Step::last) {
    moving = false;
  }
  if (Step::last) {
    pass.history[rounds % pass.every * r + column] = numbers.real(NORM);
    ++rounds;
  }
}

}  // namespace sparsegpu
