// The products of attention by mma, of sixteen rows of a warp (ptx/mma.cuh), from tiles in shared
// memory that are Panels (common/strip_ring.cuh). float32 is rounded to TF32, which the tensor
// cores would truncate.
#pragma once

#include "common/strip_ring.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"

namespace sparsegpu {

// Four 8 x 8 matrices of words, or 8 x 16 of halves, of rows in shared memory.
template <typename E>
__device__ __forceinline__ void load_fragment(unsigned (&words)[4], unsigned address) {
  ldmatrix_x4(words, address);
  if constexpr (sizeof(E) == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = to_tf32(__uint_as_float(words[i]));
  }
}

// Where a lane begins to read the left operand of an mma: sixteen lines of a tile, from line
// `first` on.
template <typename Tile>
__device__ __forceinline__ unsigned left_lane(int first) {
  const int lane = threadIdx.x % 32;
  return Tile::address(0, first + lane % 16, lane / 16 * (16 / Tile::SIZE));
}
// Likewise the right operands of two, whose columns are sixteen lines of a tile.
template <typename Tile>
__device__ __forceinline__ unsigned right_lane() {
  const int lane = threadIdx.x % 32;
  return Tile::address(0, lane / 16 * 8 + lane % 8, lane / 8 % 2 * (16 / Tile::SIZE));
}

// Adds the products of a left operand with the lines of a tile: acc += a @ b.T, where `a` is column
// k of fragments, and acc of N / 4 strips of eight lines. `b_lane`: what right_lane returns.
template <typename Tile, int N>
__device__ __forceinline__ void add_dot_products(float (&acc)[N], const unsigned (&a)[4], int k,
                                                 unsigned tile, unsigned b_lane) {
  typedef typename Tile::Element E;
#pragma unroll
  for (int j = 0; j < N / 4; j += 2) {
    unsigned b[4];
    load_fragment<E>(b, tile + Tile::advance(b_lane, 8 * j, Mma<E>::k * k));
    mma<E>(reinterpret_cast<float (&)[4]>(acc[4 * j]), a, {b[0], b[1]});
    mma<E>(reinterpret_cast<float (&)[4]>(acc[4 * j + 4]), a, {b[2], b[3]});
  }
}

// Adds weighted lines of a tile: sums += weights @ lines.
template <typename Tile>
struct AddedRows {
  typedef typename Tile::Element E;
  unsigned lane;  // where it begins to read

  __device__ __forceinline__ AddedRows() {
    const int lane_number = threadIdx.x % 32;
    if constexpr (sizeof(E) == 4)
      lane = Tile::address(0, lane_number % 4 * 2, lane_number / 4);
    else
      lane = Tile::address(0, lane_number % 16, lane_number / 16 * 8);
  }
  // `weights`: of the k-th Mma<E>::k lines (weight_fragment in common/attention_tile.cuh).
  template <int N>
  __device__ __forceinline__ void add(float (&sums)[N], const unsigned (&weights)[4], int k,
                                      unsigned tile) const {
    if constexpr (sizeof(E) == 4) {
      // Words, because ldmatrix cannot transpose them: of terms t and t + 4 a lane reads lines 2t
      // and 2t + 1, which the swizzle puts into different banks than the other lanes'.
      const unsigned lines[2] = {lane, (lane ^ 16) + Tile::PITCH};
#pragma unroll
      for (int n = 0; n < N / 4; ++n) {
        unsigned b[2];
#pragma unroll
        for (int i = 0; i < 2; ++i)
          b[i] = to_tf32(
              __uint_as_float(shared_word(tile + Tile::advance(lines[i], Mma<E>::k * k, 8 * n))));
        mma<E>(reinterpret_cast<float (&)[4]>(sums[4 * n]), weights, b);
      }
    } else {
#pragma unroll
      for (int n = 0; n < N / 4; n += 2) {
        unsigned b[4];
        ldmatrix_x4_trans(b, tile + Tile::advance(lane, Mma<E>::k * k, 8 * n));
        mma<E>(reinterpret_cast<float (&)[4]>(sums[4 * n]), weights, {b[0], b[1]});
        mma<E>(reinterpret_cast<float (&)[4]>(sums[4 * n + 4]), weights, {b[2], b[3]});
      }
    }
  }
};

// The two products of attention. HeldBytes: of a row of queries, at most, that stay in registers.
template <typename Queries, typename Keys, typename Values, int HeldBytes = 256>
struct WarpAttention {
  typedef typename Queries::Element E;
  static constexpr int STEPS = Queries::WIDTH / Mma<E>::k;
  static constexpr bool IN_REGISTERS = Queries::WIDTH * sizeof(E) <= HeldBytes;

  unsigned q[IN_REGISTERS ? STEPS : 1][4];
  unsigned queries;  // their tile
  unsigned query_lane, key_lane = right_lane<Keys>();
  AddedRows<Values> values;

  // `first_row`: the warp's, of the tile of queries.
  __device__ __forceinline__ WarpAttention(unsigned queries, int first_row)
      : queries(queries), query_lane(left_lane<Queries>(first_row)) {}
  __device__ __forceinline__ void load(unsigned (&words)[4], int k) const {
    load_fragment<E>(words, queries + Queries::advance(query_lane, 0, Mma<E>::k * k));
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
    // Unrolled, a loop would load more fragments ahead than there are registers.
#pragma unroll(IN_REGISTERS || sizeof(E) == 2 ? STEPS : 1)
    for (int k = 0; k < STEPS; ++k) {
      if (!IN_REGISTERS) load(q[0], k);
      add_dot_products<Keys>(scores, q[IN_REGISTERS ? k : 0], k, keys, key_lane);
    }
  }
  // Add weights @ value, of a tile of keys; the weights as the accumulators of the scores are.
  template <int M, int N>
  __device__ __forceinline__ void sums(float (&sums)[N], const float (&weights)[M],
                                       unsigned tile) const {
#pragma unroll
    for (int k = 0; k < 2 * M / Mma<E>::k; ++k) {
      unsigned a[4];
      weight_fragment<E>(a, weights, k);
      values.add(sums, a, k, tile);
    }
  }
};

}  // namespace sparsegpu
