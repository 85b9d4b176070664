// How threads copy a slice of lines (rows of a product's left operand, columns of its right one) to
// shared memory for mma, by cp.async: lines may lie anywhere in the operand.
#pragma once

#include "common/ceil_div.cuh"
#include "common/cp_async_pipeline.cuh"
#include "common/view.cuh"
#include "common/warp_mma.cuh"

namespace sparsegpu {

// Slices of DEPTH terms of up to LINES lines, one after the other, as an OperandTile. What lies
// behind the last line or the last term is zero. Across: the lines of a vector follow each other
// in memory, and all of them exist or none.
template <typename E, Lines HOW, int LINES, int DEPTH, int THREADS>
struct LinesCpAsync {
  static constexpr bool ALONG = HOW == Lines::along;
  static constexpr int SIZE = sizeof(E), VECTOR = 16 / SIZE;
  static constexpr int WIDTH = (ALONG ? DEPTH : LINES) / VECTOR, HEIGHT = ALONG ? LINES : DEPTH;
  static constexpr int DOWN = THREADS / WIDTH;
  static constexpr int POINTERS = ALONG ? ceil_div(LINES, DOWN) : 1;
  typedef OperandTile<E, LINES, DEPTH, ALONG> Tile;

  const E* from[POINTERS];  // of the next slice; null: zeros
  long long step;           // from a term to the next

  // `line_at(line)` points to term 0 of a line; null: there is no such line.
  template <typename LineAt>
  __device__ __forceinline__ LinesCpAsync(long long step, LineAt line_at) : step(step) {
    const int x = threadIdx.x % WIDTH * VECTOR, y = threadIdx.x / WIDTH;
#pragma unroll
    for (int i = 0; i < POINTERS; ++i) {
      const int line = ALONG ? y + i * DOWN : x;
      from[i] = line < LINES ? line_at(line) : nullptr;
      if (from[i] != nullptr) from[i] += ALONG ? x : y * step;
    }
  }

  // Start to copy the next slice, of which `terms` terms exist.
  __device__ __forceinline__ void load(unsigned char* slice, int terms) {
    share_copies<THREADS, WIDTH, HEIGHT>([&](int vector, int y, int c) {
      const E* at = from[ALONG ? c / DOWN : 0];
      if constexpr (ALONG) {
        const int bytes = min(max(terms - vector * VECTOR, 0) * SIZE, 16);
        cp_async_partial<16, false>(slice + Tile::offset(y + c, vector * VECTOR), at,
                                    at != nullptr ? bytes : 0);
      } else {
        cp_async<16>(slice + Tile::offset(vector * VECTOR, y + c), at + c * step,
                     at != nullptr && y + c < terms);
      }
    });
#pragma unroll
    for (int i = 0; i < POINTERS; ++i)
      if (from[i] != nullptr) from[i] += ALONG ? DEPTH : DEPTH * step;
  }
};

}  // namespace sparsegpu
