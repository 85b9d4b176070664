// Whether columns ascend within the block rows of a pattern, by one reading of it.
//
// A warp takes a row of a matrix.
//
// -DINDEX of the pattern (s32, s64).
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;

// facts, of the host and zero before: whether any column is lower than the one before it in its
// row, and whether any is the same.
extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_column_order(long long* facts, const INDEX* indptr, const INDEX* indices,
                     long long matrices, long long rows, long long nnzb) {
  const long long step = (long long)gridDim.x * (THREADS / 32);
  const int lane = threadIdx.x % 32;
  bool falls = false, repeats = false;
  for (long long i = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; i < matrices * rows;
       i += step) {
    const long long matrix = i / rows;
    const INDEX* starts = indptr + i + matrix;  // a matrix has one more than rows
    const INDEX* columns = indices + matrix * nnzb;
    for (long long p = starts[0] + 1 + lane; p < starts[1]; p += 32) {
      falls |= columns[p] < columns[p - 1];
      repeats |= columns[p] == columns[p - 1];
    }
  }
  if (__any_sync(~0u, falls) && lane == 0) facts[0] = 1;
  if (__any_sync(~0u, repeats) && lane == 0) facts[1] = 1;
}
