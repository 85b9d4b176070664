// The gradient of attention's sinks: -sum of exp(sink - lse) * delta over the queries of the heads
// that share a sink.
//
// A thread block computes one. Its threads sum every THREADS-th query, and their sums are added in
// a fixed order, so that the bits are the same every run. delta is what
// bsr_attention_backward_simt.cu left.
//
// -DT: f32, f64

#include "common/view.cuh"
#include "common/types.cuh"

using namespace sparsegpu;

typedef T A;  // of sinks and lse

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_attention_backward_sinks(const View gradient, const View sinks, const View lse,
                                 const View delta, const Batch batch, long long items,
                                 long long shares, long long queries) {
  __shared__ A sums[THREADS];
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const long long first = item * shares;
    const A sink = *batch_ptr<const A>(sinks, batch, first);
    A sum = A(0);
    for (long long b = first; b < first + shares; ++b) {
      const A* normalisers = batch_ptr<const A>(lse, batch, b);
      const A* deltas = batch_ptr<const A>(delta, batch, b);
      for (long long j = threadIdx.x; j < queries; j += THREADS) {
        const A normaliser = normalisers[j * lse.row];
        // a sink of -inf has no weight, at a query that attends to nothing, too
        const A base = isinf(normaliser) && normaliser < A(0) ? A(0) : normaliser;
        sum -= exp(sink - base) * deltas[j * delta.row];
      }
    }
    sums[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *batch_ptr<A>(gradient, batch, first) = sums[0];
    __syncthreads();
  }
}
