// st.v4: sixteen bytes written at once. Assigned to a struct in memory, or to a uint4, four words
// may be written one by one, a quarter of a sector at a time.
// PTX ISA, "Data movement and conversion instructions: st".
#pragma once

namespace sparsegpu {

__device__ __forceinline__ void st_vector(void* global, unsigned a, unsigned b, unsigned c,
                                          unsigned d) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"l"(global), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

}  // namespace sparsegpu
