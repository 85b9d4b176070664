// 4 x 4 tile pruning, dense to dense: one thread a tile.
//
//   T     dtype of the values
//   RULE  largest_abs_values, largest_values, causal1122, or given_mask
//   (semi_structured_apply_dense)
//
// Tiles that are cut by the last row or column stay as they are.

#include "common/selection.cuh"
#include "common/view.cuh"

extern "C" __global__ void prune_tile(View out, View dense, const unsigned char* mask, Batch batch,
                                      long long rows, long long columns, long long total) {
  long long here = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (here >= total) return;
  long long tile_columns = (columns + 3) / 4, tile_rows = (rows + 3) / 4;
  long long tile_column = here % tile_columns, tile_row = here / tile_columns % tile_rows;
  long long b = here / tile_columns / tile_rows;
  long long row = tile_row * 4, column = tile_column * 4;
  const T* from = batch_ptr<T>(dense, batch, b) + element_offset(dense, row, column);
  T* to = batch_ptr<T>(out, batch, b) + element_offset(out, row, column);
  if (row + 4 > rows || column + 4 > columns) {
    for (int r = 0; r < 4 && row + r < rows; ++r)
      for (int c = 0; c < 4 && column + c < columns; ++c)
        to[element_offset(out, r, c)] = from[element_offset(dense, r, c)];
    return;
  }
  T value[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) value[i] = from[element_offset(dense, i / 4, i % 4)];
  unsigned kept;
  if constexpr (RULE == given_mask) {
    const unsigned char* bytes = mask + mask_offset(tile_row, tile_column, columns);
    kept = bytes[0] | bytes[1] << 8;
  } else {
    kept = choose_in_tile<RULE>(value);
  }
#pragma unroll
  for (int i = 0; i < 16; ++i)
    to[element_offset(out, i / 4, i % 4)] = kept >> i & 1 ? value[i] : zero_of<T>();
}
