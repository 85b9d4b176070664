// st.v4 on the host; it wants an aligned address.
#pragma once

namespace sparsegpu {

inline void st_vector(void* global, unsigned a, unsigned b, unsigned c, unsigned d) {
  auto* const at = static_cast<unsigned char*>(global);
  if (at >= emulator::shared_memory && at < emulator::shared_memory + emulator::SHARED_BYTES)
    emulator::fail("a vector for global memory is written to shared memory");
  if (reinterpret_cast<uintptr_t>(global) % 16) emulator::fail("st.v4 to an address not aligned");
  const unsigned words[] = {a, b, c, d};
  std::memcpy(global, words, 16);
}

}  // namespace sparsegpu
