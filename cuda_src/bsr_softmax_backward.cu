// Gradient of the softmax along each element row of a BSR matrix, y being the softmax:
//
//     out = y * (grad - sum(grad * y)), the sum over the row's stored elements
//
// Rows are shared out by common/stored_rows.cuh. A lane keeps its first KEPT vectors of both
// operands in registers; what follows is read STREAMED vectors at a time, once for the sum and once
// for the result, the second time from its end, which the caches may still hold. So a row that fits
// is read once. `out` may be `grad`: a lane writes nothing but what it alone has read.
//
// -DT, -DOUT: element types (bf16, f16, f32; f64); -DWIDE: elements of a vector, which the three
// matrices hold aligned and side by side; -DTEAM: 32, or all threads of the block; -DTHREADS of the
// block; -DRESIDENT threads of a multiprocessor; -DKEPT, -DSTREAMED; -DWHOLE: of
// common/stored_rows.cuh; -DINDEX: of the pattern (s32, s64).

#include "common/stored_rows.cuh"
#include "common/types.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
typedef RowShare<TEAM, WHOLE> Share;
typedef Share::Cursor Cursor;
static_assert(TEAM == 32 || TEAM == THREADS, "a team of several warps uses the block's barrier");

typedef RowPieces<const T, WIDE> Operand;
typedef RowPieces<OUT, WIDE> Result;

// Up to N vectors of both from a place on; what is past the end is zero.
template <int N>
struct Vectors {
  Pack<T, WIDE> grad[N], softmax[N];
  int count;

  __device__ __forceinline__ void load(const Operand& from_grad, const Operand& from_softmax,
                                       const Share& row, Cursor& at) {
    count = 0;
    const T* from = from_grad[at];
    const T* beside = from_softmax[at];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      grad[k].fill(zero_of<T>());
      softmax[k].fill(zero_of<T>());
      if (row.has(at)) {
        grad[k].load(from);
        softmax[k].load(beside);
        ++count;
      }
      const bool wraps = at.advance();
      from_grad.advance(from, at, wraps);
      from_softmax.advance(beside, at, wraps);
    }
  }
  __device__ __forceinline__ void add_products(A& sum) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
#pragma unroll
      for (int e = 0; e < WIDE; ++e) sum = fma_acc(grad[k].acc(e), softmax[k].acc(e), sum);
      grad[k].forget();
      softmax[k].forget();
    }
  }
  __device__ __forceinline__ void store(const Result& results, Cursor at, A sum) const {
    OUT* to = results[at];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      Pack<OUT, WIDE> pack;
#pragma unroll
      for (int e = 0; e < WIDE; ++e)
        pack.value[e] = round_to<OUT>(softmax[k].acc(e) * (grad[k].acc(e) - sum));
      if (k < count) pack.store(to);
      results.advance(to, at, at.advance());
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    bsr_softmax_backward(const View out, const View grad, const View softmax, const View indptr,
                         const Batch batch, const RowsProblem problem) {
  Share row(problem);
  RowGroup group(problem, blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM);
  for (; group.matrix < problem.matrices; group.advance(problem)) {
    row.find<INDEX>(problem, indptr, batch, group);
    const Operand of_grad(grad, batch, row), of_softmax(softmax, batch, row);
    const Result results(out, batch, row);

    Vectors<KEPT> kept;
    Cursor at = row.begin;
    kept.load(of_grad, of_softmax, row, at);
    A sum = A(0);
    kept.add_products(sum);
    int rounds = 0;
    for (; row.has(at); ++rounds) {
      Vectors<STREAMED> more;
      more.load(of_grad, of_softmax, row, at);
      more.add_products(sum);
    }
    sum = row.across(sum, [](A a, A b) { return a + b; });

    kept.store(results, row.begin, sum);
    for (; rounds > 0; --rounds) {
#pragma unroll
      for (int k = 0; k < STREAMED; ++k) at.go_back();
      Cursor to = at;
      Vectors<STREAMED> more;
      more.load(of_grad, of_softmax, row, to);
      more.store(results, at, sum);
    }
  }
}
