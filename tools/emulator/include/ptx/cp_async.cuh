// cp.async on the host: bytes arrive when a thread waits for their group, and are others until then.
#pragma once

#include "emulator.h"

namespace sparsegpu {

inline unsigned shared_address(const void* p) {
  return unsigned(static_cast<const unsigned char*>(p) - emulator::shared_memory);
}
// Static shared variables lie elsewhere in memory, at signed distances.
inline unsigned char* shared_pointer(unsigned address) {
  return emulator::shared_memory + int(address);
}
inline unsigned shared_word(unsigned address) {
  unsigned word;
  std::memcpy(&word, shared_pointer(address), 4);
  return word;
}

struct AsyncCopy {
  unsigned char* to;
  const void* from;  // null: zeros
  int bytes;
  int size;  // of these, that are read
};
struct AsyncCopies {
  std::vector<AsyncCopy> open;
  std::vector<std::vector<AsyncCopy>> groups;
};
static AsyncCopies async_copies[1024];  // of each thread

template <int BYTES, bool L1 = BYTES != 16>
void cp_async(unsigned shared, const void* global, bool valid = true) {
  if (shared % BYTES != 0 || (valid && uintptr_t(global) % BYTES != 0))
    emulator::fail("a cp.async that is not aligned");
  std::memset(shared_pointer(shared), emulator::NOT_YET, BYTES);
  async_copies[threadIdx.x].open.push_back(
      {shared_pointer(shared), valid ? global : nullptr, BYTES, BYTES});
}

template <int BYTES, bool L1 = BYTES != 16>
void cp_async(void* shared, const void* global, bool valid = true) {
  cp_async<BYTES, L1>(shared_address(shared), global, valid);
}

// The first `size` bytes, and zeros behind them.
template <int BYTES, bool L1 = true>
void cp_async_partial(void* shared, const void* global, int size) {
  cp_async<BYTES>(shared, global, size > 0);
  async_copies[threadIdx.x].open.back().size = size;
}

inline void cp_async_commit() {
  AsyncCopies& mine = async_copies[threadIdx.x];
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}

template <int N>
void cp_async_wait() {
  auto& groups = async_copies[threadIdx.x].groups;
  for (; int(groups.size()) > N; groups.erase(groups.begin()))
    for (const AsyncCopy& copy : groups.front()) {
      std::memset(copy.to, 0, size_t(copy.bytes));
      if (copy.from) std::memcpy(copy.to, copy.from, size_t(copy.size));
    }
}

}  // namespace sparsegpu
