// The split rows of bsr_addmm_vector.cu: adds the partial sums of their splits and applies the
// epilogue.
//
// A thread block takes a row; its threads take every THREADS-th split each, and then the threads'
// sums are added pairwise: an order that depends on the number of splits alone.
//
// -DT, -DOUT, -DEPILOGUE, -DACT as in bsr_addmm_simt.cu; -DBM rows of a block; -DCOLUMNS N.
#include "common/kernel_epilogue.cuh"
#include "common/output_matrix.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr int THREADS = 256;
constexpr int OUTPUTS = BM * COLUMNS;

struct SplitRowsProblem {
  long long batches, rows;
  long long partials;  // of a batch
};

// A row that is split: its sums are partials first .. first + count - 1.
struct SplitRow {
  long long row, first, count;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_addmm_vector_reduce(const __grid_constant__ View out, const __grid_constant__ View rows,
                            const __grid_constant__ Batch batch,
                            const __grid_constant__ SplitRowsProblem problem, const A* partials,
                            const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  __shared__ A sums[THREADS];
  for (long long work = blockIdx.x; work < problem.batches * problem.rows; work += gridDim.x) {
    const long long b = work / problem.rows;
    const SplitRow row = reinterpret_cast<const SplitRow*>(
        batch_ptr<const s64>(rows, batch, b))[work % problem.rows];
    const A* from = partials + (b * problem.partials + row.first) * OUTPUTS;
    const OutputMatrix<KernelEpilogue<A, OUT>> matrix(out, batch, epilogue, b);
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
      if (threadIdx.x == 0) matrix.store(sums[0], row.row * BM + i / COLUMNS, i % COLUMNS);
      __syncthreads();  // sums are no longer read
    }
  }
}
