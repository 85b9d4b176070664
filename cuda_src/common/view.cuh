// A strided matrix operand with broadcast batches, as one kernel argument (runtime/view.py).
#pragma once

#include "common/offset_of.cuh"

namespace sparsegpu {

// Strides count elements; a broadcast dimension has stride 0. `ptr` is null for an absent operand.
struct View {
  void* ptr;
  long long row, col;
  long long batch[4];
};
static_assert(OFFSET_OF(View, ptr) == 0 && OFFSET_OF(View, row) == 8 &&
                  OFFSET_OF(View, col) == 16 && OFFSET_OF(View, batch) == 24 && sizeof(View) == 56,
              "runtime/view.py packs seven 64-bit words");

// How a matrix operand may be copied: in 16-byte vectors of its rows or of its columns, in 4-byte
// words of its 8-bit rows, or element by element.
enum class Layout { rows, columns, bytes, strided };

// What 16-byte vectors of an operand run along: its lines (rows of a left operand, columns of a
// right one), or across them.
enum class Lines { along, across };

// The batch shape of the result, padded in front with ones.
struct Batch {
  int n[4];
};
static_assert(OFFSET_OF(Batch, n) == 0 && sizeof(Batch) == 16,
              "runtime/view.py packs four 32-bit words");

// Offset, in elements, of matrix number b of a result whose batch shape is `shape`.
__device__ __forceinline__ long long batch_offset(const View& view, const Batch& shape,
                                                  long long b) {
  long long offset = 0;
#pragma unroll
  for (int d = 3; d >= 0; --d) {
    if (b == 0) break;
    long long next = b / shape.n[d];
    offset += (b - next * shape.n[d]) * view.batch[d];
    b = next;
  }
  return offset;
}

// Where matrix number b of a result stands in its batch, for views of many operands.
struct BatchIndex {
  int n[4];

  BatchIndex() = default;  // in shared memory
  __device__ __forceinline__ BatchIndex(const Batch& shape, long long b) {
#pragma unroll
    for (int d = 3; d >= 0; --d) {
      const long long next = b / shape.n[d];
      n[d] = int(b - next * shape.n[d]);
      b = next;
    }
  }
  // The offset of the matrix in a view, in elements.
  __device__ __forceinline__ long long offset(const View& view) const {
    long long offset = 0;
#pragma unroll
    for (int d = 0; d < 4; ++d) offset += n[d] * view.batch[d];
    return offset;
  }
  template <typename E>
  __device__ __forceinline__ E* pointer(const View& view) const {
    return static_cast<E*>(view.ptr) + offset(view);
  }
};

// First element of matrix number b.
template <typename E>
__device__ __forceinline__ E* batch_ptr(const View& view, const Batch& shape, long long b) {
  return static_cast<E*>(view.ptr) + batch_offset(view, shape, b);
}

// Offset of element (r, c) within one matrix.
__device__ __forceinline__ long long element_offset(const View& view, long long r, long long c) {
  return r * view.row + c * view.col;
}

}  // namespace sparsegpu
