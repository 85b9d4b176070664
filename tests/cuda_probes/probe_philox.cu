// words[4 * i ..] = philox4x32(counter[i]); keep[i]: whether dropout keeps number counter[i].
#include "common/philox.cuh"

using namespace sparsegpu;

extern "C" __global__ void probe_philox(const unsigned long long* counter, uint4* words,
                                        unsigned char* keep, unsigned long long seed, double p,
                                        int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  words[i] = philox4x32(counter[i], seed);
  keep[i] = philox_word(counter[i], seed) > highest_dropped(p);
}
