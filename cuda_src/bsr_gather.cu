// The stored blocks of a dense matrix: out[b, p] = dense[b, block row of p, block column of p].
//
// A thread block copies `blocks_per_item` consecutive blocks; its threads write consecutive values,
// and read along the rows of the matrix.
//
// -DT: element type; -DINDEX: of the pattern's indices (s32, s64).

#include "common/types.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_gather(const View out, const View dense, const View rows, const View indices,
               const Batch batch, long long groups, long long items, long long nnzb,
               int blocks_per_item, int bm, int bk) {
  const int area = bm * bk;
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const long long b = item / groups;
    const long long first = item % groups * blocks_per_item;
    const long long left = nnzb - first;
    const int blocks = left < blocks_per_item ? (int)left : blocks_per_item;

    T* values = (T*)out.ptr + batch_offset(out, batch, b) + first * out.row;
    const T* matrix = (const T*)dense.ptr + batch_offset(dense, batch, b);
    const INDEX* row = (const INDEX*)rows.ptr + batch_offset(rows, batch, b) + first * rows.row;
    const INDEX* column =
        (const INDEX*)indices.ptr + batch_offset(indices, batch, b) + first * indices.row;
    for (int place = threadIdx.x; place < blocks * area; place += THREADS) {
      const int p = place / area, within = place - p * area;
      const int r = within / bk, c = within - r * bk;
      const long long i = (long long)row[p * rows.row] * bm + r;
      const long long j = (long long)column[p * indices.row] * bk + c;
      values[p * out.row + within * out.col] = matrix[i * dense.row + j * dense.col];
    }
  }
}
