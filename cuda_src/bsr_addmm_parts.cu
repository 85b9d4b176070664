// The rows that bsr_addmm_vector.cu summed in pieces: adds the pieces' sums and finishes them.
//
// A thread block takes a row; its threads take every THREADS-th piece each, and then the threads'
// sums are added pairwise: an order that depends on the number of pieces alone.
//
// -DT, -DOUT, -DEPILOGUE, -DACT as in bsr_addmm_simt.cu; -DBM rows of a block; -DCOLUMNS N.
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/kernel_epilogue.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr int THREADS = 256;
constexpr int OUTPUTS = BM * COLUMNS;

struct Sizes {
  long long batches, rows, parts_of_batch;
};

// A row in pieces: its sums are parts first .. first + count - 1.
struct Row {
  long long row, first, count;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_addmm_parts(const __grid_constant__ View out, const __grid_constant__ View rows,
                    const __grid_constant__ Batch batch, const __grid_constant__ Sizes sizes,
                    const A* parts, const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  __shared__ A sums[THREADS];
  for (long long work = blockIdx.x; work < sizes.batches * sizes.rows; work += gridDim.x) {
    const long long b = work / sizes.rows;
    const Row row =
        reinterpret_cast<const Row*>(batch_ptr<const s64>(rows, batch, b))[work % sizes.rows];
    const A* from = parts + (b * sizes.parts_of_batch + row.first) * OUTPUTS;
    const KernelEpilogue<A, OUT> finish(epilogue, batch, b);
    OUT* out_matrix = batch_ptr<OUT>(out, batch, b);
    if (row.count == 0) continue;  // the batches have different numbers of such rows
    for (int i = 0; i < OUTPUTS; ++i) {
      A sum = A(0);
#pragma unroll 4
      for (long long p = threadIdx.x; p < row.count; p += THREADS)
        sum = sum + from[p * OUTPUTS + i];
      sums[threadIdx.x] = sum;
#pragma unroll 1
      for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] = sums[threadIdx.x] + sums[threadIdx.x + half];
      }
      if (threadIdx.x == 0) {
        const long long m = row.row * BM + i / COLUMNS;
        const int n = i % COLUMNS;
        out_matrix[element_offset(out, m, n)] = finish(sums[0], m, n);
      }
      __syncthreads();  // sums are no longer read
    }
  }
}
