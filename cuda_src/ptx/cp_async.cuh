// cp.async: copies from global to shared memory that a thread need not wait for.
// PTX ISA, "Data movement: cp.async", "cp.async.commit_group", "cp.async.wait_group".
#pragma once

namespace sparsegpu {

// The address of shared memory as PTX wants it.
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return unsigned(__cvta_generic_to_shared(p));
}
// The word there.
__device__ __forceinline__ unsigned shared_word(unsigned address) {
  return *static_cast<const unsigned*>(__cvta_shared_to_generic(address));
}

// Copy BYTES (4, 8 or 16; both addresses aligned to BYTES), or fill them with zeros where `valid`
// is false: then nothing is read, and `global` need not be a valid address. Copies of 16 bytes
// bypass L1 unless L1 is true, for what other thread blocks of the multiprocessor read as well.
template <int BYTES, bool L1 = BYTES != 16>
__device__ __forceinline__ void cp_async(unsigned shared, const void* global, bool valid = true) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  static_assert(BYTES == 16 || L1, "smaller copies go through L1");
  int size = valid ? BYTES : 0;
  if constexpr (L1) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared), "l"(global),
                 "n"(BYTES), "r"(size)
                 : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global),
                 "r"(size)
                 : "memory");
  }
}
template <int BYTES, bool L1 = BYTES != 16>
__device__ __forceinline__ void cp_async(void* shared, const void* global, bool valid = true) {
  cp_async<BYTES, L1>(shared_address(shared), global, valid);
}

// Copy the first `size` bytes (0 .. BYTES) and fill the rest with zeros: the end of a row.
template <int BYTES, bool L1 = true>
__device__ __forceinline__ void cp_async_partial(unsigned shared, const void* global, int size) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  static_assert(BYTES == 16 || L1, "smaller copies go through L1");
  if constexpr (L1)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared), "l"(global),
                 "n"(BYTES), "r"(size)
                 : "memory");
  else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global),
                 "r"(size)
                 : "memory");
}
template <int BYTES, bool L1 = true>
__device__ __forceinline__ void cp_async_partial(void* shared, const void* global, int size) {
  cp_async_partial<BYTES, L1>(shared_address(shared), global, size);
}

__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Wait until all but the latest N of this thread's groups have ended. Other threads' copies may be
// read after a __syncthreads behind it.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

}  // namespace sparsegpu
