// ex2: 2 to a power, with a relative error of 2**-22; subnormal results are 0.
// PTX ISA, "Floating point instructions: ex2".
#pragma once

namespace sparsegpu {

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace sparsegpu
