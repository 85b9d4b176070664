// cp.async.bulk on the host: the bytes are others until they arrive.
#pragma once

#include "ptx/mbarrier.cuh"

namespace sparsegpu {

struct BytesCopy : BarrierCopy {
  const void* from;
  unsigned to;

  void arrive() override { std::memcpy(shared_pointer(to), from, size_t(bytes)); }
};

inline void bulk_load(unsigned shared, const void* global, int bytes, unsigned barrier) {
  if (uintptr_t(shared_pointer(shared)) % 16 || uintptr_t(global) % 16 || bytes % 16)
    emulator::fail("a bulk copy that is not aligned");
  auto copy = std::make_unique<BytesCopy>();
  copy->barrier = barrier;
  copy->bytes = bytes;
  copy->from = global;
  copy->to = shared;
  std::memset(shared_pointer(shared), emulator::NOT_YET, size_t(bytes));
  copies_under_way.push_back(std::move(copy));
}

}  // namespace sparsegpu
