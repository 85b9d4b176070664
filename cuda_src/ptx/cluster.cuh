// Clusters: thread blocks that run together and write into each other's shared memory (from compute
// capability 9.0).
// PTX ISA, "Parallel synchronization: barrier.cluster", "Data movement: mapa", "st.async".
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

// Say that this thread is here; nothing that it wrote need be visible (barriers made before a
// mbarrier_init_fence are). All threads of a warp together.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}
// Wait until all threads of the cluster have arrived. All threads of a warp together.
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

// The address within the cluster of what lies at `shared` in the thread block of that rank.
__device__ __forceinline__ unsigned cluster_address(unsigned shared, int rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

// Write into the shared memory of a thread block of the cluster, and count the sixteen bytes on a
// barrier that lies there, too.
__device__ __forceinline__ void cluster_store(unsigned address, float4 x, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];\n" ::"r"(address),
      "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
      : "memory");
}

}  // namespace sparsegpu
