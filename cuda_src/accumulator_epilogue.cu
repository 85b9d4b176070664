// The epilogue applied to accumulators in memory, behind a library's product.
//
// One thread an element, along the contiguous dimension of `out`; `sums` should have the same
// layout.
//
//   -DT dtype of the operands; -DOUT, -DEPILOGUE, -DACT (common/kernel_epilogue.cuh)
#include "common/kernel_epilogue.cuh"
#include "common/output_matrix.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr int THREADS = 256;

struct AccumulatorProblem {
  long long m, n, batches;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    accumulator_epilogue(const __grid_constant__ View out, const __grid_constant__ View sums,
                         const __grid_constant__ Batch batch,
                         const __grid_constant__ AccumulatorProblem problem,
                         const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  const long long matrix = problem.m * problem.n, total = matrix * problem.batches;
  const bool by_column = out.row < out.col;
  // The grid covers everything unless that is more than a grid may have.
  for (long long e = (long long)blockIdx.x * THREADS + threadIdx.x; e < total;
       e += (long long)gridDim.x * THREADS) {
    const long long b = e / matrix, at = e % matrix;
    const long long r = by_column ? at % problem.m : at / problem.n;
    const long long c = by_column ? at / problem.m : at % problem.n;
    const A sum = batch_ptr<const A>(sums, batch, b)[element_offset(sums, r, c)];
    OutputMatrix<KernelEpilogue<A, OUT>>(out, batch, epilogue, b).store(sum, r, c);
  }
}
