// The sums of the splits of a sampled product (common/sampled_tile.cuh), added in their order; the
// epilogue makes the stored blocks of them.
//
// A thread takes an element of a block. Deterministic.
//
// -DT, -DOUT, -DEPILOGUE as in bsr_sampled_addmm_simt.cu.
#include "common/kernel_epilogue.cuh"
#include "common/output_matrix.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
typedef KernelEpilogue<A, OUT> Op;

constexpr int THREADS = 256;

struct SampledParts {
  long long matrices, blocks;      // blocks: of a matrix
  long long out_step, input_step;  // from a block to the next
  int bm, bn, splits, padding;
};

// partials: of every split the blocks of all matrices, row by row.
extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_sampled_addmm_reduce(const __grid_constant__ View out, const __grid_constant__ Batch batch,
                             const __grid_constant__ SampledParts problem, const A* partials,
                             const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  const long long size = (long long)problem.bm * problem.bn;
  const long long elements = problem.matrices * problem.blocks * size;
  for (long long x = (long long)blockIdx.x * THREADS + threadIdx.x; x < elements;
       x += (long long)gridDim.x * THREADS) {
    A sum = partials[x];
    for (int split = 1; split < problem.splits; ++split) sum = sum + partials[split * elements + x];

    const long long place = x / size, matrix = place / problem.blocks;
    const long long block = place - matrix * problem.blocks;
    const long long row = (x - place * size) / problem.bn;
    const long long column = x - place * size - row * problem.bn;
    Op op(epilogue, batch, matrix);
    if constexpr (Op::HAS_INPUT) op.input += block * problem.input_step;
    batch_ptr<OUT>(out, batch,
                   matrix)[block * problem.out_step + element_offset(out, row, column)] =
        op(sum, row, column);
  }
}
