// 4 x 4 tile pruning, dense to dense.
//
//   T     dtype of the values
//   RULE  largest_abs_values, largest_values, causal1122, or given_mask
//   (semi_structured_apply_dense)
//
// A thread takes two neighbouring tiles. Tiles that the last row or column cuts are copied.

#include "common/ceil_div.cuh"
#include "common/selection.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

constexpr int kBlockRows = 32, kBlockColumns = 256;  // elements: 8 x 32 threads

__device__ __forceinline__ bool is_aligned(const View& view) {
  u64 bits = u64(view.ptr);
#pragma unroll
  for (int d = 0; d < 4; ++d) bits |= u64(view.batch[d] * sizeof(T));
  return view.col == 1 && (bits | u64(view.row * sizeof(T))) % 16 == 0;
}

// One tile, which may be cut, in memory of any strides.
__device__ __forceinline__ void one_tile(T* to, const View& out, const T* from, const View& dense,
                                         unsigned given, long long rows, long long columns) {
  if (rows < 4 || columns < 4) {
    for (int r = 0; r < 4 && r < rows; ++r)
      for (int c = 0; c < 4 && c < columns; ++c)
        to[element_offset(out, r, c)] = from[element_offset(dense, r, c)];
    return;
  }
  T value[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) value[i] = from[element_offset(dense, i / 4, i % 4)];
  unsigned kept = given;
  if constexpr (RULE != given_mask) kept = choose_in_tile<RULE>(value);
#pragma unroll
  for (int i = 0; i < 16; ++i)
    to[element_offset(out, i / 4, i % 4)] = kept >> i & 1 ? value[i] : zero_of<T>();
}

// Two whole tiles in rows that are aligned to 16 bytes.
template <typename V>
__device__ __forceinline__ void two_tiles(V* to, long long out_row, const V* from,
                                          long long dense_row, u32 given) {
  if constexpr (sizeof(V) <= 2) {
    Tile4x4 tile[2];
    load(tile, from, dense_row, 1, true);
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      u32 kept = given >> (16 * t) & 0xffffu;
      if constexpr (RULE != given_mask) kept = choose<RULE, V>(tile[t]);
      keep(tile[t], kept);
    }
    store(to, tile, out_row);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    prune_tile(View out, View dense, const unsigned char* mask, Batch batch, long long rows,
               long long columns) {
  unsigned column_blocks = unsigned(ceil_div(columns, kBlockColumns));
  unsigned row_blocks = unsigned(ceil_div(rows, kBlockRows));
  unsigned line = blockIdx.x / column_blocks;
  long long b = line / row_blocks;
  long long row = (long long)(line % row_blocks) * kBlockRows + threadIdx.x / 32 * 4;
  long long column = (long long)(blockIdx.x % column_blocks) * kBlockColumns + threadIdx.x % 32 * 8;
  if (row >= rows || column >= columns) return;
  const T* from = batch_ptr<T>(dense, batch, b) + element_offset(dense, row, column);
  T* to = batch_ptr<T>(out, batch, b) + element_offset(out, row, column);
  u32 given = 0;
  if constexpr (RULE == given_mask)
    given = *reinterpret_cast<const u32*>(mask + mask_offset(row / 4, column / 4, columns));

  if (sizeof(T) <= 2 && row + 4 <= rows && column + 8 <= columns && is_aligned(out) &&
      is_aligned(dense))
    return two_tiles(to, out.row, from, dense.row, given);
  for (int t = 0; t < 2 && column + 4 * t < columns; ++t)
    one_tile(to + element_offset(out, 0, 4 * t), out, from + element_offset(dense, 0, 4 * t), dense,
             given >> (16 * t) & 0xffffu, rows - row, columns - column - 4 * t);
}
