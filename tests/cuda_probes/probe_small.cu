// The smallest kernel: out[i] = VALUE, with some dynamic shared memory to opt in to.
extern "C" __global__ void probe_small(int* out, int n) {
  extern __shared__ int scratch[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (SHARED) scratch[threadIdx.x + SHARED / 4 - blockDim.x] = VALUE;
  out[i] = SHARED ? scratch[threadIdx.x + SHARED / 4 - blockDim.x] : VALUE;
}
