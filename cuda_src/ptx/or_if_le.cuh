// or.b32 under a predicate: bits |= bit where a <= b. Two instructions; of the same in C++ the
// compiler makes a selection and the or.
// PTX ISA, "Predicated execution", "Comparison and selection instructions: setp".
#pragma once

namespace sparsegpu {

__device__ __forceinline__ void or_if_le(unsigned& bits, unsigned bit, unsigned a, unsigned b) {
  asm("{\n"
      ".reg .pred le;\n"
      "setp.le.u32 le, %1, %2;\n"
      "@le or.b32 %0, %0, %3;\n"
      "}\n"
      : "+r"(bits)
      : "r"(a), "r"(b), "r"(bit));
}

}  // namespace sparsegpu
