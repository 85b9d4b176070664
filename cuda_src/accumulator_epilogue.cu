// Accumulators that lie in memory become outputs: what a product by a library leaves to us.
//
// One thread an element, along the lines of `out`; `sums` should lie the same way.
//
//   -DT dtype of the operands; -DOUT, -DEPILOGUE, -DACT as in common/epilogue.cuh
#include "common/kernel_epilogue.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr int THREADS = 256;

struct Sizes {
  long long m, n, batches;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    accumulator_epilogue(const __grid_constant__ View out, const __grid_constant__ View sums,
                         const __grid_constant__ Batch batch, const __grid_constant__ Sizes sizes,
                         const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  const long long matrix = sizes.m * sizes.n, total = matrix * sizes.batches;
  const bool by_column = out.row < out.col;
  // The grid covers everything unless that is more than a grid may have.
  for (long long e = (long long)blockIdx.x * THREADS + threadIdx.x; e < total;
       e += (long long)gridDim.x * THREADS) {
    const long long b = e / matrix, place = e % matrix;
    const long long r = by_column ? place % sizes.m : place / sizes.n;
    const long long c = by_column ? place / sizes.m : place % sizes.n;
    const KernelEpilogue<A, OUT> finish(epilogue, batch, b);
    const A sum = batch_ptr<const A>(sums, batch, b)[element_offset(sums, r, c)];
    batch_ptr<OUT>(out, batch, b)[element_offset(out, r, c)] = finish(sum, r, c);
  }
}
