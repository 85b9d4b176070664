// A tile of the dense operand in shared memory: K rows of N columns, copied by TMA in the layout
// that wgmma reads.
//
// Where the operand lies in columns, the tile has a line of K elements for each of them. Where it
// lies in rows, it is copied in boxes of K rows, a line for each: wgmma reads those of 16-bit types
// as MN-major, and bsr_addmm_sm90.cu transposes those of 8 bits. A line is as wide as the tensor
// map's swizzle.
#pragma once

#include "common/types.cuh"
#include "common/view.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/wgmma.cuh"

namespace sparsegpu {

template <typename E, Layout Contiguous, int K, int N>
struct DenseTileTma {
  typedef E Element;
  static constexpr int SIZE = sizeof(E);
  static constexpr bool IN_ROWS = Contiguous == Layout::rows;
  static constexpr bool MN_MAJOR = IN_ROWS && SIZE > 1;  // as wgmma reads it
  static_assert(SIZE == 2 || !MN_MAJOR, "wgmma reads only 16-bit types as MN-major");
  static constexpr int LINE_BYTES = MN_MAJOR ? 128 : K * SIZE;
  static constexpr int BOX = LINE_BYTES / SIZE;  // columns of a box of rows
  static constexpr int BYTES = K * N * SIZE;

  int first, batch;
  bool edge;  // the tile has columns behind the last whole box

  __device__ __forceinline__ DenseTileTma(long long first_col, long long n, int batch)
      : first(int(first_col)),
        batch(batch),
        edge(IN_ROWS && n % BOX != 0 && first_col + N > n / BOX * BOX) {}

  // Call load(shared, map, coordinates...) for its boxes from row k on. To the tensor map `whole`
  // of an operand in rows, the columns are whole boxes; to `edge_map` they are single columns.
  template <typename Load>
  __device__ __forceinline__ void load(unsigned to, const TensorMap& whole,
                                       const TensorMap& edge_map, int k, Load load) const {
    if (!IN_ROWS) {
      load(to, whole, k, first, batch);
    } else if (!edge) {
      load(to, whole, 0, k, first / BOX, batch);
    } else {
      for (int c = 0; c < N; c += BOX) load(to + c * (K * SIZE), edge_map, first + c, k, batch);
    }
  }

  // The descriptor of what one wgmma reads of a tile, from byte `of_k` of its k on.
  static __device__ __forceinline__ unsigned long long descriptor(unsigned tile, int of_k) {
    return MN_MAJOR
               ? smem_descriptor<LINE_BYTES>(tile + of_k / SIZE * LINE_BYTES, 1024, K * LINE_BYTES)
               : smem_descriptor<LINE_BYTES>(tile + of_k, 8 * LINE_BYTES, 16);
  }
};

}  // namespace sparsegpu
