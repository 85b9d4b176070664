// Elements that lie side by side in memory, in registers.
#pragma once

#include "common/vector16.cuh"
#include "ptx/opaque.cuh"
#include "ptx/st_vector.cuh"

namespace sparsegpu {

template <typename E>
struct IsBfloat16 {
  static constexpr bool value = false;
};
template <>
struct IsBfloat16<bf16> {
  static constexpr bool value = true;
};

// Neighbouring elements, moved by as few accesses as their bytes allow.
template <typename E, int N>
struct Pack {
  typedef typename Word<(N * sizeof(E) < 16 ? N * sizeof(E) : 16)>::type Part;
  static constexpr int PARTS = N * sizeof(E) / sizeof(Part);
  alignas(16) E value[N];

  __device__ __forceinline__ void load(const E* from) {
#pragma unroll
    for (int i = 0; i < PARTS; ++i)
      reinterpret_cast<Part*>(value)[i] = reinterpret_cast<const Part*>(from)[i];
  }
  __device__ __forceinline__ void store(E* to) const {
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      if constexpr (sizeof(Part) == 16) {
        const unsigned* words = reinterpret_cast<const unsigned*>(value) + 4 * i;
        st_vector(reinterpret_cast<Part*>(to) + i, words[0], words[1], words[2], words[3]);
      } else {
        reinterpret_cast<Part*>(to)[i] = reinterpret_cast<const Part*>(value)[i];
      }
    }
  }
  __device__ __forceinline__ void fill(E x) {
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = x;
  }
  // An element in accumulator precision. The upper bfloat16 of a word takes one instruction this
  // way; of a value of two bytes it takes a permutation and a shift.
  __device__ __forceinline__ auto acc(int i) const {
    if constexpr (IsBfloat16<E>::value && N > 1) {
      const unsigned word = reinterpret_cast<const unsigned*>(value)[i / 2];
      return __uint_as_float(i % 2 ? word & 0xffff0000u : word << 16);
    } else {
      return to_acc(value[i]);
    }
  }
  // Let no conversion of the elements be kept beside them (ptx/opaque.cuh).
  __device__ __forceinline__ void forget() {
    if constexpr (sizeof(E) < 4 && N * sizeof(E) >= 4) {
#pragma unroll
      for (int i = 0; i < int(N * sizeof(E) / 4); ++i)
        reinterpret_cast<unsigned*>(value)[i] = opaque(reinterpret_cast<unsigned*>(value)[i]);
    }
  }
};

}  // namespace sparsegpu
