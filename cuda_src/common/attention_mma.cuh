// The two products of attention by mma, of sixteen queries of a warp (ptx/mma.cuh), from tiles in
// shared memory: Queries, Keys and Values are Panels (common/strip_ring.cuh).
#pragma once

#include "common/strip_ring.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"

namespace sparsegpu {

template <typename E, typename Queries, typename Keys, typename Values, int MostHeld = 128>
struct WarpAttention {
  static constexpr int STEPS = Queries::WIDTH / 16;
  static constexpr bool IN_REGISTERS = Queries::WIDTH <= MostHeld;  // the fragments of the queries

  unsigned q[IN_REGISTERS ? STEPS : 1][4];
  unsigned queries;  // their tile
  // What the lane reads of a fragment, from a tile on.
  unsigned query_lane, key_lane, value_lane;

  // `first_row`: the warp's, of the tile of queries.
  __device__ __forceinline__ WarpAttention(unsigned queries, int first_row) : queries(queries) {
    const int lane = threadIdx.x % 32;
    query_lane = Queries::address(0, first_row + lane % 16, lane / 16 * 8);
    key_lane = Keys::address(0, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
    value_lane = Values::address(0, lane % 16, lane / 16 * 8);
  }
  __device__ __forceinline__ void load(unsigned (&words)[4], int k) const {
    ldmatrix_x4(words, queries + Queries::advance(query_lane, 0, 16 * k));
  }
  // Once the queries have arrived.
  __device__ __forceinline__ void load_queries() {
    if (!IN_REGISTERS) return;
#pragma unroll
    for (int k = 0; k < STEPS; ++k) load(q[IN_REGISTERS ? k : 0], k);
  }
  // Add query @ key.T to accumulators, of a tile of N / 4 strips of keys.
  template <int N>
  __device__ __forceinline__ void scores(float (&scores)[N], unsigned keys) {
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
      if (!IN_REGISTERS) load(q[0], k);
      const unsigned (&a)[4] = q[IN_REGISTERS ? k : 0];
#pragma unroll
      for (int j = 0; j < N / 4; j += 2) {
        unsigned b[4];
        ldmatrix_x4(b, keys + Keys::advance(key_lane, 8 * j, 16 * k));
        mma<E>(reinterpret_cast<float (&)[4]>(scores[4 * j]), a, {b[0], b[1]});
        mma<E>(reinterpret_cast<float (&)[4]>(scores[4 * j + 4]), a, {b[2], b[3]});
      }
    }
  }
  // Add weights @ value, of 16 keys from number 16 k of the tile on.
  template <int N>
  __device__ __forceinline__ void sums(float (&sums)[N], const unsigned (&weights)[4], int k,
                                       unsigned values) const {
#pragma unroll
    for (int n = 0; n < N / 4; n += 2) {
      unsigned b[4];
      ldmatrix_x4_trans(b, values + Values::advance(value_lane, 16 * k, 8 * n));
      mma<E>(reinterpret_cast<float (&)[4]>(sums[4 * n]), weights, {b[0], b[1]});
      mma<E>(reinterpret_cast<float (&)[4]>(sums[4 * n + 4]), weights, {b[2], b[3]});
    }
  }
};

}  // namespace sparsegpu
