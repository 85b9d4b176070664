// mbarrier: barriers in shared memory that count arrivals and the bytes of asynchronous copies.
// PTX ISA, "Parallel synchronization: mbarrier".
//
// A phase of a barrier ends when `count` arrivals have come and the bytes announced by
// mbarrier_expect have been copied. Phases alternate between parity 0 and 1; a wait for the
// parity of the phase before the first one returns at once.
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

__device__ __forceinline__ void mbarrier_init(unsigned barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(count) : "memory");
}

// Let the asynchronous copies see the barriers that this thread made.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// The same, at a barrier of any thread block of the cluster (ptx/cluster.cuh gives its address),
// for who has only read: as a release to the cluster it would wait until what the thread wrote is
// visible to the whole GPU, which takes longer than a stage of products.
__device__ __forceinline__ void mbarrier_arrive_at(unsigned cluster_barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];\n" ::"r"(cluster_barrier) : "memory");
}

// Arrive, and announce `bytes` that copies will bring within this phase.
__device__ __forceinline__ void mbarrier_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Wait for the end of the phase of this parity.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ended;\n"
      "bra again;\n"
      "ended:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace sparsegpu
