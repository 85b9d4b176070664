// cp.async.bulk.tensor: TMA moves boxes of a tensor between global and shared memory.
// PTX ISA, "Data movement: cp.async.bulk.tensor", "Tensor map".
//
// A box is described by a tensor map (runtime/tensor_map.py) and the coordinates of its first
// element, innermost first. That element is at a multiple of 16 bytes in global memory, or the
// instruction is illegal. Elements outside the tensor read as zero and are not written; all
// bytes of a box count on the barrier. Within its tensor map's swizzle of W bytes, the
// 16-byte vector v of row r of a box (rows of W bytes) is stored at v ^ (r / (128 / W) % (W / 16)).
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

// Have a map that is a kernel's argument at hand before the first copy.
__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void tma_load(unsigned shared, const TensorMap& map, unsigned barrier,
                                         int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void tma_load(unsigned shared, const TensorMap& map, unsigned barrier,
                                         int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void tma_load(unsigned shared, const TensorMap& map, unsigned barrier,
                                         int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// The address of byte x of row r in a box of rows of Width bytes that is swizzled so.
template <int Width>
__device__ __forceinline__ unsigned swizzled_address(unsigned box, int r, int x) {
  const unsigned offset = r * Width + x;
  return box + (offset ^ (offset >> 3 & (Width - 16)));
}

// Load a box into the shared memory of every thread block of the cluster that has a bit in `ranks`,
// at the same offset in each; its bytes count on the barrier at the same offset there.
__device__ __forceinline__ void tma_load_multicast(unsigned shared, const TensorMap& map,
                                                   unsigned barrier, unsigned short ranks, int x,
                                                   int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "h"(ranks), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void tma_load_multicast(unsigned shared, const TensorMap& map,
                                                   unsigned barrier, unsigned short ranks, int x,
                                                   int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "h"(ranks), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// Store a box. The stores of a thread form groups, which tma_store_commit closes.
__device__ __forceinline__ void tma_store(const TensorMap& map, unsigned shared, int x, int y,
                                          int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];\n" ::
          "l"(&map),
      "r"(shared), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

// Wait until all but the latest N of this thread's groups have read shared memory.
template <int N>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(N) : "memory");
}

// Wait until all of this thread's groups are in global memory.
__device__ __forceinline__ void tma_store_wait_all() {
  asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory");
}

// Make this thread's writes to shared memory visible to TMA and wgmma (the async proxy).
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

}  // namespace sparsegpu
