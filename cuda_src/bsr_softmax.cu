// Softmax along each element row of a BSR matrix, over the stored elements only.
//
// Rows are shared out by common/stored_rows.cuh. A lane loads its first KEPT vectors at once and
// keeps them in registers; what follows is read STREAMED vectors at a time, with a running maximum
// and a running sum (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). So
// a row that fits is read once; of a longer one the rest is read twice, the second time from its
// end, which the caches may still hold. Rows may be of any length. `out` may be `data`: a lane
// writes nothing but what it alone has read.
//
// A team has its next row brought to the L2 before it finishes this one: 3% faster on an H200.
//
// An exponential is kept as its square root, which is a normal number where ex2's result would be
// subnormal, hence 0. It is squared by the multiply-add that sums it.
//
// A row of -inf alone gives NaN, as does a NaN or +inf in the row: all follow from exp(x -
// maximum).
//
// -DT, -DOUT: element types (bf16, f16, f32; f64); -DWIDE: elements of a vector, which `out` and
// `data` hold aligned and side by side; -DTEAM: 32, or all threads of the block; -DTHREADS of the
// block; -DRESIDENT threads of a multiprocessor; -DKEPT, -DSTREAMED; -DWHOLE: of
// common/stored_rows.cuh; -DINDEX: of the pattern (s32, s64).

#include "common/stored_rows.cuh"
#include "common/types.cuh"
#include "ptx/ex2.cuh"
#include "ptx/prefetch.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
typedef RowShare<TEAM, WHOLE> Share;
typedef Share::Cursor Cursor;
typedef RowPieces<const T, WIDE> Operand;
typedef RowPieces<OUT, WIDE> Result;
static_assert(TEAM == 32 || TEAM == THREADS, "a team of several warps uses the block's barrier");

__device__ __forceinline__ A minus_infinity() {
  return A(__int_as_float(0xff800000));
}
// The square root of exp(x).
__device__ __forceinline__ f32 root_of_exp(f32 x) {
  return exp2_approx(x * (0.5f * 1.4426950408889634f));
}
__device__ __forceinline__ f64 root_of_exp(f64 x) {
  return exp(0.5 * x);
}
__device__ __forceinline__ f32 higher(f32 x, f32 y) {
  return fmaxf(x, y);  // a NaN is not higher
}
__device__ __forceinline__ f64 higher(f64 x, f64 y) {
  return fmax(x, y);
}
// What exponents are relative to: exp(-inf) is 0, not NaN.
__device__ __forceinline__ A base_of(A top) {
  return top == minus_infinity() ? A(0) : top;
}

// The highest of many elements; of pairs where the type has an instruction for two.
struct Highest {
  A top = minus_infinity();
  __device__ __forceinline__ void raise(const Pack<T, WIDE>& pack) {
#pragma unroll
    for (int e = 0; e < WIDE; ++e) top = higher(top, pack.acc(e));
  }
  __device__ __forceinline__ A get() const { return top; }
};
template <typename Pair>
struct HighestOfPairs {
  Pair top = {round_to<T>(minus_infinity()), round_to<T>(minus_infinity())};
  __device__ __forceinline__ void raise(const Pack<T, WIDE>& pack) {
#pragma unroll
    for (int i = 0; i < WIDE / 2; ++i)
      top = __hmax2(top, reinterpret_cast<const Pair*>(pack.value)[i]);  // a NaN is not higher
  }
  __device__ __forceinline__ A get() const { return higher(to_acc(top.x), to_acc(top.y)); }
};
template <typename E>
struct TopOf {
  typedef Highest type;
};
template <>
struct TopOf<f16> {
  typedef HighestOfPairs<__half2> type;
};
template <>
struct TopOf<bf16> {
  typedef HighestOfPairs<__nv_bfloat162> type;
};
typedef Conditional<(WIDE > 1), TopOf<T>::type, Highest>::type Top;

// The sum of exponentials of several values, relative to a base.
struct Sum {
  A base, sum;
  __device__ __forceinline__ explicit Sum(A top) : base(base_of(top)), sum(0) {}
  __device__ __forceinline__ A add(A x) {
    const A root = root_of_exp(x - base);
    sum = fma_acc(root, root, sum);
    return root;
  }
};

// Up to N vectors of a lane's row from a place on.
template <int N>
struct Vectors {
  Pack<T, WIDE> pack[N];
  int count;

  __device__ __forceinline__ void load(const Operand& values, const Share& row, Cursor& at) {
    count = 0;
    const T* from = values[at];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      pack[k].fill(round_to<T>(minus_infinity()));
      if (row.has(at)) {
        pack[k].load(from);
        ++count;
      }
      values.advance(from, at, at.advance());
    }
  }
  template <typename Use>
  __device__ __forceinline__ void each(Use use) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      use(k);
    }
  }
  __device__ __forceinline__ A highest() {
    Top top;
    each([&](int k) { top.raise(pack[k]); });
    return top.get();
  }
  __device__ __forceinline__ void add_to(Sum& sum) {
    each([&](int k) {
#pragma unroll
      for (int e = 0; e < WIDE; ++e) sum.add(pack[k].acc(e));
      pack[k].forget();
    });
  }
  // Write the exponentials times a factor; `root` gives their roots.
  template <typename Root>
  __device__ __forceinline__ void store(const Result& results, Cursor at, A factor, Root root) {
    OUT* to = results[at];
    each([&](int k) {
      Pack<OUT, WIDE> result;
#pragma unroll
      for (int e = 0; e < WIDE; ++e) {
        const A r = root(k, e);
        result.value[e] = round_to<OUT>(r * (r * factor));
      }
      if (k < count) result.store(to);
      results.advance(to, at, at.advance());
    });
  }
  __device__ __forceinline__ void store(const Result& results, const Cursor& at, A factor, A base) {
    store(results, at, factor, [&](int k, int e) { return root_of_exp(pack[k].acc(e) - base); });
  }
};

// Have what a lane will keep of a row brought to the L2.
__device__ __forceinline__ void request(const Operand& values, const Share& row) {
  Cursor at = row.begin;
  const T* from = values[at];
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    if (row.has(at)) prefetch_l2(from);
    values.advance(from, at, at.advance());
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    bsr_softmax(const View out, const View data, const View indptr, const Batch batch,
                const RowsProblem problem) {
  Share row(problem);
  RowGroup group(problem, blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM);
  if (group.matrix < problem.matrices) row.find<INDEX>(problem, indptr, batch, group);
  while (group.matrix < problem.matrices) {
    const Operand values(data, batch, row);
    const Result results(out, batch, row);

    Vectors<KEPT> kept;
    Cursor at = row.begin;
    kept.load(values, row, at);
    group.advance(problem);
    Share next = row;
    next.blocks = 0;
    if (group.matrix < problem.matrices) next.find<INDEX>(problem, indptr, batch, group);
    const A top_of_kept = kept.highest();

    Sum streamed(minus_infinity());
    A top_of_streamed = minus_infinity();
    int rounds = 0;
    for (; row.has(at); ++rounds) {
      Vectors<STREAMED> more;
      more.load(values, row, at);
      const A before = top_of_streamed;
      top_of_streamed = higher(before, more.highest());
      const A sum = streamed.sum;
      streamed = Sum(top_of_streamed);
      const A shrunk = root_of_exp(before - streamed.base);
      streamed.sum = sum * shrunk * shrunk;
      more.add_to(streamed);
    }

    const A top =
        row.across(higher(top_of_kept, top_of_streamed), [](A a, A b) { return higher(a, b); });
    if (next.blocks > 0) request(Operand(data, batch, next), next);
    Sum all(top);
    if (rounds > 0) {
      const A shrunk = root_of_exp(top_of_streamed - all.base);
      all.sum = streamed.sum * shrunk * shrunk;
    }
    A roots[KEPT][WIDE];
    kept.each([&](int k) {
#pragma unroll
      for (int e = 0; e < WIDE; ++e) roots[k][e] = all.add(kept.pack[k].acc(e));
    });
    // of a row of -inf alone the sum is 0, and 0 * (1 / 0) is NaN
    const A factor = A(1) / row.across(all.sum, [](A a, A b) { return a + b; });
    kept.store(results, row.begin, factor, [&](int k, int e) { return roots[k][e]; });
    for (; rounds > 0; --rounds) {
#pragma unroll
      for (int k = 0; k < STREAMED; ++k) at.go_back();
      Cursor to = at;
      Vectors<STREAMED> more;
      more.load(values, row, to);
      more.store(results, at, factor, all.base);
    }
    next.next_half = row.next_half;
    row = next;
  }
}
