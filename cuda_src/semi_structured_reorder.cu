// Metadata from row-major to CUTLASS's order, or back: one thread an element.
//
//   META_BYTES  2 or 4: size of a metadata element
//   RESTORE     0: out[place] = in[(row, column)]; 1: out[(row, column)] = in[place]

#include "common/semi_structured.cuh"

using namespace sparsegpu;

extern "C" __global__ void semi_structured_reorder(Bits<META_BYTES>::type* out,
                                                   const Bits<META_BYTES>::type* in, long long m,
                                                   long long columns) {
  long long here = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (here >= m * columns) return;
  long long place = meta_offset<META_BYTES>(here / columns, here % columns, m);
  if (RESTORE)
    out[here] = in[place];
  else
    out[place] = in[here];
}
