// TMA on the host: boxes of a batch of row-major matrices, swizzled by their width of 32, 64 or 128
// bytes. The bytes are others until they arrive.
#pragma once

#include "ptx/mbarrier.cuh"

namespace sparsegpu {

template <int Width>
unsigned swizzled_address(unsigned box, int r, int x) {
  const unsigned offset = unsigned(r * Width + x);
  return box + (offset ^ (offset >> 3 & (Width - 16)));
}

// Where a byte of shared memory is under a swizzle, which goes by the address itself.
inline unsigned swizzled(unsigned at, unsigned width) {
  return at ^ (at >> 7 & (width / 16 - 1)) << 4;
}

// As tools/emulator/host.py packs it.
struct alignas(64) TensorMap {
  unsigned char* data;
  long long matrices, rows, columns;    // of the tensor
  long long matrix_stride, row_stride;  // bytes
  long long box_rows, box_columns, itemsize;
  long long unused[7];
};
static_assert(sizeof(TensorMap) == 128, "a kernel's argument");

inline void prefetch_tensor_map(const TensorMap&) {}

struct BoxCopy : BarrierCopy {
  TensorMap map;
  unsigned to;
  long long x, y, z;

  void arrive() override {
    const long long line = map.box_columns * map.itemsize;
    for (long long r = 0; r < map.box_rows; ++r)
      for (long long c = 0; c < map.box_columns; ++c) {
        const unsigned at = swizzled(to + unsigned(r * line + c * map.itemsize), unsigned(line));
        const bool inside = z >= 0 && z < map.matrices && y + r >= 0 && y + r < map.rows &&
                            x + c >= 0 && x + c < map.columns;
        if (inside)
          std::memcpy(
              shared_pointer(at),
              map.data + z * map.matrix_stride + (y + r) * map.row_stride + (x + c) * map.itemsize,
              size_t(map.itemsize));
        else
          std::memset(shared_pointer(at), 0, size_t(map.itemsize));
      }
  }
};

inline void tma_load(unsigned shared, const TensorMap& map, unsigned barrier, int x, int y, int z) {
  const long long line = map.box_columns * map.itemsize;
  if (line != 32 && line != 64 && line != 128) emulator::fail("a box of no swizzle's width");
  if (shared % (8 * line) != 0)
    emulator::fail("a box that is not aligned to its swizzle's pattern");
  if (x * map.itemsize % 16 != 0) emulator::fail("a box that begins between multiples of 16 bytes");
  auto copy = std::make_unique<BoxCopy>();
  copy->barrier = barrier;
  copy->bytes = long(map.box_rows * line);
  copy->map = map;
  copy->to = shared;
  copy->x = x;
  copy->y = y;
  copy->z = z;
  std::memset(shared_pointer(shared), emulator::NOT_YET, size_t(copy->bytes));
  copies_under_way.push_back(std::move(copy));
}

inline void fence_async_proxy() {}

}  // namespace sparsegpu
