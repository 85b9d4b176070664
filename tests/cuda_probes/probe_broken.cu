// Does not compile: line 6 names something that does not exist.
#include "common/types.cuh"

extern "C" __global__ void probe_broken(float* out) {
  out[0] = 1;
  out[1] = no_such_thing;
}
