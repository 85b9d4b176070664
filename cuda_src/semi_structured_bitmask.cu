// The swizzled bitmask of a pruned matrix: a bit where the value is not zero, one thread a tile.
//
//   T  dtype of the values

#include "common/selection.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

extern "C" __global__ void semi_structured_bitmask(unsigned char* mask, View pruned, long long rows,
                                                   long long columns) {
  long long here = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  long long tile_columns = columns / 4;
  if (here >= rows / 4 * tile_columns) return;
  long long tile_row = here / tile_columns, tile_column = here % tile_columns;
  const T* from =
      static_cast<const T*>(pruned.ptr) + element_offset(pruned, tile_row * 4, tile_column * 4);
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i)
    bits |= unsigned(!is_zero(from[element_offset(pruned, i / 4, i % 4)])) << i;
  unsigned char* bytes = mask + mask_offset(tile_row, tile_column, columns);
  bytes[0] = bits & 255;
  bytes[1] = bits >> 8;
}
