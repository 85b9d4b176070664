// The epilogue as a kernel of its own: out[b] = epilogue(acc[b]) for contiguous matrices.
#include "common/epilogue.cuh"

extern "C" __global__ void probe_epilogue(const Acc<T>::type* acc, OUT* out, int rows, int cols,
                                          Batch batch,
                                          const __grid_constant__ Epilogue<Acc<T>::type> epilogue) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const long long matrix = (long long)rows * cols;
  const long long b = blockIdx.y;
  if (at >= matrix) return;
  Finish<Acc<T>::type, OUT> finish(epilogue, batch, b);
  out[b * matrix + at] = finish(acc[b * matrix + at], at / cols, at % cols);
}
