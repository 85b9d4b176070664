// Whether columns ascend within the rows of a pattern: what a warp sees of the rows it looks at.
#pragma once

namespace sparsegpu {

struct ColumnOrder {
  bool falls = false, repeats = false;

  // Look at the blocks first .. last - 1, which are a row's.
  template <typename Index>
  __device__ __forceinline__ void look(const Index* columns, long long first, long long last,
                                       int lane) {
    for (long long p = first + 1 + lane; p < last; p += 32) {
      falls |= columns[p] < columns[p - 1];
      repeats |= columns[p] == columns[p - 1];
    }
  }

  // Say at `facts`, zero before, whether any column is lower than the one before it in its row, and
  // whether any is the same. For all lanes of the warp.
  __device__ __forceinline__ void tell(long long* facts, int lane) const {
    if (__any_sync(~0u, falls) && lane == 0) facts[0] = 1;
    if (__any_sync(~0u, repeats) && lane == 0) facts[1] = 1;
  }
};

}  // namespace sparsegpu
