// A pattern with its block rows in another order: row i is row block_rows[i] of the pattern. Also
// which block each of its blocks is.
//
// A warp takes a row.
//
// -DINDEX: of the pattern (s32, s64).
#include "common/types.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_row_gather(INDEX* out, long long* out_from, const INDEX* out_indptr, const INDEX* indptr,
                   const INDEX* indices, const long long* blocks_from, const int* block_rows,
                   long long rows, long long rows_a_matrix, long long padded_rows, long long nnzb) {
  const int lane = threadIdx.x % 32;
  for (long long i = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; i < rows;
       i += (long long)gridDim.x * (THREADS / 32)) {
    const long long b = i / rows_a_matrix, of_matrix = b * (rows_a_matrix + 1);
    const int row = block_rows[b * padded_rows + i % rows_a_matrix];
    const long long from = b * nnzb + indptr[of_matrix + row];
    const long long to = b * nnzb + out_indptr[i + b];
    const long long count = out_indptr[i + b + 1] - out_indptr[i + b];
#pragma unroll 4
    for (long long p = lane; p < count; p += 32) {
      out[to + p] = indices[from + p];
      out_from[to + p] = blocks_from ? blocks_from[from + p] : from + p;
    }
  }
}
