// Whether columns ascend within the block rows of a pattern, by one reading of it.
//
// A warp takes a row of a matrix.
//
// -DINDEX of the pattern (s32, s64).
#include "common/column_order.cuh"
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;

// facts, of the host and zero before: what common/column_order.cuh says.
extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_column_order(long long* facts, const INDEX* indptr, const INDEX* indices,
                     long long matrices, long long rows, long long nnzb) {
  const long long step = (long long)gridDim.x * (THREADS / 32);
  const int lane = threadIdx.x % 32;
  ColumnOrder order;
  for (long long i = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; i < matrices * rows;
       i += step) {
    const long long matrix = i / rows;
    const INDEX* starts = indptr + i + matrix;  // a matrix has one more than rows
    order.look(indices + matrix * nnzb, starts[0], starts[1], lane);
  }
  order.tell(facts, lane);
}
