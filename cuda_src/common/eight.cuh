// Eight results side by side, as few stores take them where they lie well. -DOUT.
#pragma once

#include "common/epilogue.cuh"

struct alignas(sizeof(OUT) == 1 ? 8 : 16) Eight {
  OUT value[8];
  __device__ __forceinline__ void store(OUT* to) const {
    typedef typename Either<sizeof(OUT) == 1, uint2, uint4>::type Word;
#pragma unroll
    for (int w = 0; w < int(sizeof(value) / sizeof(Word)); ++w)
      reinterpret_cast<Word*>(to)[w] = reinterpret_cast<const Word*>(value)[w];
  }
};
