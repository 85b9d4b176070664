// A tile's columns of `dense` in shared memory: K rows of COLUMNS columns, brought by the copy
// engine as wgmma reads them. -DT and -DDENSE are those of the source.
//
// Where `dense` lies in columns, a panel has a line for each of them, K elements long. Where it
// lies in rows, it comes in boxes of K rows, each a line: wgmma transposes those of 16-bit types
// (common/turn.cuh those of 8 bits). Lines have the width of the tensor map's swizzle.
#pragma once

#include "common/types.cuh"
#include "common/view.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/wgmma.cuh"

namespace sparsegpu {

constexpr Layout LAYOUT = Layout::DENSE;
constexpr int SIZE = sizeof(T);
constexpr bool BY_N = LAYOUT == Layout::rows && SIZE > 1;  // as wgmma reads `dense`
static_assert(SIZE == 2 || !BY_N, "k is contiguous but for 16-bit types");

template <int K, int COLUMNS>
struct DensePanel {
  static constexpr int WIDTH = BY_N ? 128 : K * SIZE;  // of a line, in bytes
  static constexpr int BOX = WIDTH / SIZE;             // columns of a box of rows
  static constexpr int BYTES = K * COLUMNS * SIZE;

  int first, batch;
  bool edge;  // of the rows' last columns, which fill no box of the tensor map of whole ones

  __device__ __forceinline__ DensePanel(long long first_col, long long columns, int batch)
      : first(int(first_col)),
        batch(batch),
        edge(LAYOUT == Layout::rows && columns % BOX != 0 &&
             first_col + COLUMNS > columns / BOX * BOX) {}

  // Call load(shared, map, place...) for its boxes from row k on. The rows of `dense` are BOX
  // columns by BOX columns to the tensor map of whole boxes, and as they are to `ragged`.
  template <typename Load>
  __device__ __forceinline__ void bring(unsigned to, const TensorMap& whole,
                                        const TensorMap& ragged, int k, Load load) const {
    if (LAYOUT == Layout::columns) {
      load(to, whole, k, first, batch);
    } else if (!edge) {
      load(to, whole, 0, k, first / BOX, batch);
    } else {
      for (int n = 0; n < COLUMNS; n += BOX) load(to + n * (K * SIZE), ragged, first + n, k, batch);
    }
  }

  // What a product takes of a panel, from byte `of_k` of its k on.
  static __device__ __forceinline__ unsigned long long operand(unsigned panel, int of_k) {
    return BY_N ? wgmma_operand<WIDTH>(panel + of_k / SIZE * WIDTH, 1024, K * WIDTH)
                : wgmma_operand<WIDTH>(panel + of_k, 8 * WIDTH, 16);
  }
};

}  // namespace sparsegpu
