// Softmax along each element row of a BSR matrix, over the stored elements only, in vectors.
//
// Rows are shared out by common/stored_rows.cuh. A lane loads its first KEPT vectors at once and
// turns them, in registers, into exponentials relative to their own maximum; what follows is read
// STREAMED vectors at a time. Maxima and sums are combined across the team (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018), and a lane's exponentials then
// need one factor. So a row that fits is read once; of a longer one the rest is read twice, the
// second time from its end, which the caches may still hold. Rows may be of any length. `out` may
// be `data`: a lane writes nothing but what it alone has read.
//
// A row of -inf alone gives NaN, as does a NaN or +inf in the row: all follow from exp(x -
// maximum).
//
// -DT, -DOUT: element types (bf16, f16, f32; f64); -DWIDE: elements of a vector, which `out` and
// `data` hold aligned and side by side; -DTEAM: 32, or all threads of the block; -DTHREADS of the
// block; -DKEPT, -DSTREAMED; -DINDEX: of the pattern (s32, s64).

#include "common/stored_rows.cuh"
#include "common/types.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
typedef RowShare<TEAM> Share;
static_assert(TEAM == 32 || TEAM == THREADS, "a team of several warps uses the block's barrier");

__device__ __forceinline__ A minus_infinity() {
  return A(__int_as_float(0xff800000));
}
__device__ __forceinline__ f32 exponential(f32 x) {
  return exp2f(x * 1.4426950408889634f);
}
__device__ __forceinline__ f64 exponential(f64 x) {
  return exp(x);
}
__device__ __forceinline__ f32 higher(f32 x, f32 y) {
  return fmaxf(x, y);  // a NaN is not higher
}
__device__ __forceinline__ f64 higher(f64 x, f64 y) {
  return fmax(x, y);
}

// Largest of some values, and the sum of exp(x - top) over them; a NaN is in `sum`, never in `top`.
struct Partial {
  A top, sum;
};
__device__ __forceinline__ Partial shuffle_xor(const Partial& x, int mask) {
  return {shuffle_xor(x.top, mask), shuffle_xor(x.sum, mask)};
}
__device__ __forceinline__ A rescaled(const Partial& partial, A top) {
  return partial.top == top ? partial.sum : partial.sum * exponential(partial.top - top);
}
__device__ __forceinline__ Partial merge(const Partial& a, const Partial& b) {
  const A top = higher(a.top, b.top);
  return {top, rescaled(a, top) + rescaled(b, top)};
}

// N vectors of a lane's row from a place on; what is past the end counts as -inf.
template <int N>
struct Vectors {
  A x[N][WIDE];

  __device__ __forceinline__ void load(const RowPieces<const T, WIDE>& values, const Share& row,
                                       RowCursor& at) {
    Pack<T, WIDE> packs[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      packs[k].fill(round_to<T>(minus_infinity()));
      if (row.has(at)) packs[k].load(values[at]);
      at.advance();
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
#pragma unroll
      for (int e = 0; e < WIDE; ++e) x[k][e] = to_acc(packs[k].value[e]);
    }
  }

  // Replace the values by exponentials relative to the largest of them.
  __device__ __forceinline__ Partial exponentials() {
    Partial found = {minus_infinity(), A(0)};
#pragma unroll
    for (int k = 0; k < N; ++k) {
#pragma unroll
      for (int e = 0; e < WIDE; ++e) found.top = higher(found.top, x[k][e]);
    }
    const A base = found.top == minus_infinity() ? A(0) : found.top;  // exp(-inf) is 0, not NaN
#pragma unroll
    for (int k = 0; k < N; ++k) {
#pragma unroll
      for (int e = 0; e < WIDE; ++e) {
        x[k][e] = exponential(x[k][e] - base);
        found.sum += x[k][e];
      }
    }
    return found;
  }

  __device__ __forceinline__ void store(const RowPieces<OUT, WIDE>& results, const Share& row,
                                        RowCursor at, A factor) const {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      Pack<OUT, WIDE> pack;
#pragma unroll
      for (int e = 0; e < WIDE; ++e) pack.value[e] = round_to<OUT>(x[k][e] * factor);
      if (row.has(at)) pack.store(results[at]);
      at.advance();
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
    bsr_softmax_wide(const View out, const View data, const View indptr, const Batch batch,
                     const RowsProblem problem) {
  const long long teams = (long long)gridDim.x * (THREADS / TEAM);
  long long item = (long long)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
  for (; item < problem.items; item += teams) {
    Share row;
    row.find<INDEX>(problem, indptr, batch, item);
    const RowPieces<const T, WIDE> values(data, batch, row);
    const RowPieces<OUT, WIDE> results(out, batch, row);

    Vectors<KEPT> kept;
    const RowCursor begin = row.begin();
    RowCursor at = begin;
    kept.load(values, row, at);
    const Partial of_kept = kept.exponentials();
    Partial all = of_kept;
    while (row.has(at)) {
      Vectors<STREAMED> more;
      more.load(values, row, at);
      all = merge(all, more.exponentials());
    }
    all = across_team<TEAM>(all, row.lanes, merge);

    // NaN where all are -inf
    kept.store(results, row, begin.again(), exponential(of_kept.top - all.top) / all.sum);
    for (long long n = row.rounds(KEPT, STREAMED) - 1; n >= 0; --n) {
      const RowCursor from = row.cursor(KEPT + n * STREAMED);
      RowCursor to = from;
      Vectors<STREAMED> more;
      more.load(values, row, to);
      const A top = more.exponentials().top;
      more.store(results, row, from.again(), exponential(top - all.top) / all.sum);
    }
  }
}
