// An exchange among the four lanes that share a row of a tensor-core fragment (ptx/mma.cuh, d): a
// part of four groups of eight columns becomes the whole of one.
#pragma once

namespace sparsegpu {

// Exchange four words among four neighbouring lanes: of each lane's words, number t goes to lane t.
__device__ __forceinline__ void exchange(unsigned (&words)[4]) {
  const bool odd = threadIdx.x % 2, high = threadIdx.x % 4 / 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const unsigned got = __shfl_xor_sync(~0u, odd ? words[i] : words[i + 1], 1);
    words[i] = odd ? got : words[i];
    words[i + 1] = odd ? words[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned got = __shfl_xor_sync(~0u, high ? words[i] : words[i + 2], 2);
    words[i] = high ? got : words[i];
    words[i + 2] = high ? words[i + 2] : got;
  }
}

}  // namespace sparsegpu
