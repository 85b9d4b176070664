// The conversions of common/types.cuh, element by element.
#include "common/types.cuh"

using namespace sparsegpu;

extern "C" __global__ void probe_types(const T* in, Acc<T>::type* wide, T* back, b8* zero, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  wide[i] = to_acc(in[i]);
  back[i] = round_to<T>(to_acc(in[i]));
  zero[i] = round_to<b8>(s32(is_zero(in[i])));
}
