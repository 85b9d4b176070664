// Clusters: thread blocks that are scheduled at the same time and write into each other's shared
// memory (from compute capability 9.0).
// PTX ISA, "Parallel synchronization: barrier.cluster", "Data movement: mapa", "st.async".
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

// Arrive, by whole warps; relaxed: what this thread wrote need not become visible (barriers
// initialised before an mbarrier_init_fence do).
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}
// Wait until all threads of the cluster have arrived, by whole warps.
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

// The address, valid within the cluster, of address `shared` of the thread block of that rank.
__device__ __forceinline__ unsigned cluster_address(unsigned shared, int rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

// Write to the shared memory of a thread block of the cluster; the sixteen bytes count on a barrier
// of that thread block.
__device__ __forceinline__ void st_async(unsigned address, float4 x, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];\n" ::"r"(address),
      "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
      : "memory");
}

}  // namespace sparsegpu
