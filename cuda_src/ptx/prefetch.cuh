// prefetch: have a line of memory brought to the L2, without a register to hold it.
// PTX ISA, "Data movement and conversion instructions: prefetch".
#pragma once

namespace sparsegpu {

__device__ __forceinline__ void prefetch_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(global));
}

}  // namespace sparsegpu
