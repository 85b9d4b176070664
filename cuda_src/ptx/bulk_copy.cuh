// cp.async.bulk: copies of contiguous bytes from global to shared memory, which count on a barrier.
// PTX ISA, "Data movement: cp.async.bulk".
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

// `bytes` and both addresses are multiples of 16.
__device__ __forceinline__ void bulk_load(unsigned shared, const void* global, int bytes,
                                          unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace sparsegpu
