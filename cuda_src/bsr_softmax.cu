// Softmax along each element row of a BSR matrix, over the stored elements only.
//
// A team of TEAM threads takes `rows` element rows of one block row (a power of two, at most 32):
// within a warp, 32 / rows lanes go along each row, from block to block, so that a warp reads
// consecutive elements of a block even when its rows are short. Every lane keeps the running
// maximum and the running sum of exponentials of the values that it has read (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018), and its first CACHED values in
// registers: a row that fits is read once, a longer one twice. Rows may be of any length. `out` may
// be `data`.
//
// A row of -inf alone gives NaN, as does a NaN or +inf in the row: both follow from exp(x -
// maximum).
//
// -DT, -DOUT: element types (bf16, f16, f32; f64); -DTEAM: 32 or 256; -DINDEX: of the pattern (s32,
// s64).

#include "common/types.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;
constexpr int CACHED = 8;
constexpr int WARPS = TEAM / 32;
constexpr unsigned ALL = 0xffffffffu;
typedef Acc<T>::type A;

__device__ __forceinline__ A minus_infinity() {
  return A(__int_as_float(0xff800000));
}

// Sum of exp(x - top) over the values seen; a NaN propagates to `sum`, never to `top`.
struct Partial {
  A top, sum;
};

__device__ __forceinline__ void add(Partial& partial, A x) {
  if (x > partial.top) {
    // x - x is 0, and NaN for infinity
    partial.sum = partial.sum * exp(partial.top - x) + (A(1) + (x - x));
    partial.top = x;
  } else if (x != minus_infinity()) {
    partial.sum += exp(x - partial.top);
  }
}

__device__ __forceinline__ A rescaled(const Partial& partial, A top) {
  return partial.top == top ? partial.sum : partial.sum * exp(partial.top - top);
}

__device__ __forceinline__ Partial merge(const Partial& a, const Partial& b) {
  const A top = a.top > b.top ? a.top : b.top;
  return {top, rescaled(a, top) + rescaled(b, top)};
}

// A lane's position in its row: block p, column c.
struct RowIterator {
  long long p, block_step;
  int c, column_step, bk;
  __device__ RowIterator(long long start, int offset, int step, int bk)
      : p(start + offset / bk),
        block_step(step / bk),
        c(offset % bk),
        column_step(step % bk),
        bk(bk) {}
  __device__ void advance() {
    p += block_step;
    c += column_step;
    if (c >= bk) {
      c -= bk;
      ++p;
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_softmax(const View out, const View data, const View indptr, const Batch batch,
                long long groups, long long items, long long block_rows, int bm, int bk, int rows) {
  const int lane = threadIdx.x % 32, lanes = 32 / rows;  // lanes a row and warp
  const int team = threadIdx.x / TEAM, warp = threadIdx.x % TEAM / 32;
  const int step = lanes * WARPS;
  const long long teams = (long long)gridDim.x * (THREADS / TEAM);

  for (long long item = (long long)blockIdx.x * (THREADS / TEAM) + team; item < items;
       item += teams) {
    const long long group = item % groups;
    const long long i = item / groups % block_rows;
    const long long b = item / groups / block_rows;
    const INDEX* row_starts = batch_ptr<const INDEX>(indptr, batch, b);
    const int r = (int)group * rows + lane / lanes;
    const long long start = row_starts[i * indptr.row];
    // a lane past the last row of the block has nothing to read
    const long long end = r < bm ? (long long)row_starts[(i + 1) * indptr.row] : start;
    const T* values = batch_ptr<const T>(data, batch, b) + (long long)r * bk * data.col;
    OUT* results = batch_ptr<OUT>(out, batch, b) + (long long)r * bk * out.col;
    const RowIterator begin(start, warp * lanes + lane % lanes, step, bk);

    Partial mine = {minus_infinity(), A(0)};
    A cached[CACHED];
    RowIterator at = begin;
#pragma unroll
    for (int k = 0; k < CACHED; ++k) {
      cached[k] = A(0);
      if (at.p < end) {
        cached[k] = to_acc(values[at.p * data.row + at.c * data.col]);
        add(mine, cached[k]);
      }
      at.advance();
    }
    for (; at.p < end; at.advance()) {
      add(mine, to_acc(values[at.p * data.row + at.c * data.col]));
    }

    for (int offset = 1; offset < lanes; offset *= 2) {
      const Partial other = {__shfl_xor_sync(ALL, mine.top, offset),
                             __shfl_xor_sync(ALL, mine.sum, offset)};
      // the same order of the two in both lanes, so that they agree to the last bit
      mine = lane & offset ? merge(other, mine) : merge(mine, other);
    }
#if TEAM > 32
    __shared__ Partial partials[WARPS][32];
    __syncthreads();  // the row before this one has been read
    if (lane % lanes == 0) partials[warp][lane / lanes] = mine;
    __syncthreads();
    mine = partials[0][lane / lanes];
    for (int w = 1; w < WARPS; ++w) mine = merge(mine, partials[w][lane / lanes]);
#endif

    at = begin;
#pragma unroll
    for (int k = 0; k < CACHED; ++k) {
      if (at.p < end) {
        results[at.p * out.row + at.c * out.col] =
            round_to<OUT>(exp(cached[k] - mine.top) / mine.sum);
      }
      at.advance();
    }
    for (; at.p < end; at.advance()) {
      const A x = to_acc(values[at.p * data.row + at.c * data.col]);
      results[at.p * out.row + at.c * out.col] = round_to<OUT>(exp(x - mine.top) / mine.sum);
    }
  }
}
