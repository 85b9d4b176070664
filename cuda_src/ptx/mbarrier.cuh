// mbarrier: barriers in shared memory that count arrivals and the bytes of asynchronous copies.
// PTX ISA, "Parallel synchronization: mbarrier".
//
// A phase of a barrier ends after `count` arrivals and when as many bytes as
// mbarrier_arrive_expect_tx announced have been copied. Phases alternate between parity 0 and 1; a
// wait for parity 1 before the first phase has ended returns at once.
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

__device__ __forceinline__ void mbarrier_init(unsigned barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(count) : "memory");
}

// Make the barriers that this thread initialised visible to asynchronous copies and the cluster.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// Arrive at a barrier of any thread block of the cluster (its address: ptx/cluster.cuh), after
// reads only: with .release.cluster it would wait until this thread's writes are visible to the
// whole GPU, which takes longer than a stage of products.
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned cluster_barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];\n" ::"r"(cluster_barrier) : "memory");
}

// Arrive, and expect `bytes` more of copies in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, int bytes) {
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
