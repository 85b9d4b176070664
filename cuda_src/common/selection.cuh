// Which values pruning keeps: the best of a group, the greedy choice in a 4 x 4 tile.
#pragma once

#include "common/order_key.cuh"
#include "common/tile_4x4.cuh"
#include "common/types.cuh"

namespace sparsegpu {

// All types but f64 widen to f32, exactly: int8's -128 has the absolute value 128.
__device__ __forceinline__ f64 magnitude(f64 x) {
  return fabs(x);
}
template <typename E>
__device__ __forceinline__ f32 magnitude(E x) {
  return fabsf(f32(to_acc(x)));
}

// Bit i is set where key[i] is among the COUNT largest of N; ties: the lower index.
template <int COUNT, int N, typename Key>
__device__ __forceinline__ unsigned largest(const Key (&key)[N]) {
  unsigned kept = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    int before = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) before += j < i ? key[j] >= key[i] : key[j] > key[i];
    kept |= unsigned(before < COUNT) << i;
  }
  return kept;
}

template <Rule KEEP, typename E>
__device__ __forceinline__ auto tile_key(E x) {
  if constexpr (KEEP == largest_abs_values)
    return order_key(magnitude(x));
  else
    return order_key(x);
}

// The kept values of a tile of 4- or 8-byte values, bit 4 * row + column. Visiting the values in
// order and keeping one while its row and column have room equals taking, again and again, the
// largest one that still has room: room that is lost never returns. (Ties: the lower row-major
// index.)
template <Rule KEEP, typename E>
__device__ __forceinline__ unsigned choose_in_tile(const E (&value)[16]) {
  // Room left in rows 0..3 and in columns 0..3, four bits each.
  unsigned row_room = KEEP == causal1122 ? 0x2211u : 0x2222u, column_room = 0x2222u;
  decltype(tile_key<KEEP>(value[0])) key[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) key[i] = tile_key<KEEP>(value[i]);
  unsigned open = 0xffffu, kept = 0;
  while (open != 0) {
    auto best = key[0];
    int at = -1;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      bool better = (open >> i & 1) && (at < 0 || key[i] > best);
      best = better ? key[i] : best;
      at = better ? i : at;
    }
    int row = at / 4 * 4, column = at % 4 * 4;  // in bits
    kept |= 1u << at;
    open &= ~(1u << at);
    row_room -= 1u << row;
    column_room -= 1u << column;
    if ((row_room >> row & 15) == 0) open &= ~(0xfu << row);
    if ((column_room >> column & 15) == 0) open &= ~(0x1111u << (column / 4));
  }
  return kept;
}

// Where the two mask bytes of the 4 x 4 tile (tile_row, tile_column) start: 8 x 8 cells of eight
// bytes, in each the tiles top-left, top-right, bottom-left, bottom-right. Bit 4 * row + column of
// the two bytes, taken as 16 bits, is one value.
__device__ __forceinline__ long long mask_offset(long long tile_row, long long tile_column,
                                                 long long columns) {
  long long cell = tile_row / 2 * (columns / 8) + tile_column / 2;
  return cell * 8 + tile_row % 2 * 4 + tile_column % 2 * 2;
}

}  // namespace sparsegpu
