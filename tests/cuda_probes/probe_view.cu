// out[b, r, c] = in[b, r, c] for two views of one batch shape.
#include "common/view.cuh"

using namespace sparsegpu;

extern "C" __global__ void probe_view(View in, View out, Batch batch, int batches, int rows,
                                      int cols) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= (long long)batches * rows * cols) return;
  const int c = int(at % cols), r = int(at / cols % rows);
  const long long b = at / cols / rows;
  batch_ptr<float>(out, batch, b)[element_offset(out, r, c)] =
      in.ptr ? batch_ptr<float>(in, batch, b)[element_offset(in, r, c)] : -1.0f;
}
