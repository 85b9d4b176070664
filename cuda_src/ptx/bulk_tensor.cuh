// cp.async.bulk.tensor: the copy engine moves boxes of a tensor between global and shared memory.
// PTX ISA, "Data movement: cp.async.bulk.tensor", "Tensor map".
//
// A box is described by a tensor map (runtime/tensor_map.py) and the coordinates of its first
// element, innermost first. What lies outside the tensor reads as zero and is not written; the
// bytes of a box count in full on the barrier. Within its tensor map's swizzle of W bytes, the
// 16-byte piece p of row r of a box (rows of W bytes) lies at piece p ^ (r / (128 / W) % (W / 16)).
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

__device__ __forceinline__ void bulk_load(unsigned shared, const TensorMap& map, unsigned barrier,
                                          int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void bulk_load(unsigned shared, const TensorMap& map, unsigned barrier,
                                          int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void bulk_load(unsigned shared, const TensorMap& map, unsigned barrier,
                                          int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// Load a box into the shared memory of every thread block of the cluster that has a bit in `ranks`:
// at the same place, counted on the barrier at the same place, in each.
__device__ __forceinline__ void bulk_load_multicast(unsigned shared, const TensorMap& map,
                                                    unsigned barrier, unsigned short ranks, int x,
                                                    int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "h"(ranks), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void bulk_load_multicast(unsigned shared, const TensorMap& map,
                                                    unsigned barrier, unsigned short ranks, int x,
                                                    int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "h"(ranks), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// Write a box; the thread's writes form groups, closed by bulk_commit.
__device__ __forceinline__ void bulk_store(const TensorMap& map, unsigned shared, int x, int y,
                                           int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];\n" ::
          "l"(&map),
      "r"(shared), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

// Wait until at most N of this thread's latest groups have still to read shared memory.
template <int N>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(N) : "memory");
}

// Wait until all of this thread's groups are in global memory.
__device__ __forceinline__ void bulk_wait_all() {
  asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory");
}

// Let the copy engine see what this thread wrote to shared memory.
__device__ __forceinline__ void bulk_fence() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

}  // namespace sparsegpu
