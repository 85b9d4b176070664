// Attention over the stored blocks of a mask: softmax(scale * query @ key.T + mask) @ value, fused.
//
// A thread block takes up to MOST_WARPS * ROWS query rows of one block row and loops over the keys
// of the row's blocks, TILE = 32 at a time, whatever the width of a block: keys are numbered
// consecutively across blocks, and no other key or value is ever read. A warp owns ROWS query rows.
// In the scores a lane stands for a key; in the sum over values a lane stands for every 32nd column
// of value. The softmax is computed online: running maximum, normaliser and rescaled sums (Milakov
// and Gimelshein, 2018; Dao et al., "FlashAttention", 2022), so scores never reach memory.
//
// A key is attended when the mask's value is not False or -inf and, if causal, key <= query.
// What is not attended, or dropped, is left out of the sum over values, not multiplied by zero:
// a NaN there has no effect. The weights are rounded to T before they meet value.
// Value columns beyond 32 * COLUMNS are taken by other thread blocks (`slices`), which compute the
// scores again.
//
// -DT: bf16, f16, f32, f64; -DOUT: the output's type; -DINDEX: s32, s64; -DSINKS: 0, 1;
// -DROWS: query rows a warp; -DCOLUMNS: value columns a lane; the score's in kernel_score.cuh.

#include "common/kernel_score.cuh"
#include "common/lane_rows.cuh"
#include "common/normalizer.cuh"
#include "common/online_softmax.cuh"
#include "common/warp_reduce.cuh"

#ifndef OUT
#define OUT T
#endif
#ifndef SINKS
#define SINKS 0
#endif

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr int TILE = 32;
constexpr int MOST_WARPS = 4;
constexpr unsigned ALL = 0xffffffffu;

extern "C" __global__ void __launch_bounds__(MOST_WARPS * 32, 1)
    bsr_attention_simt(const View out, const View lse, const View query, const View key,
                       const View value, const View indptr, const View indices, const View sinks,
                       const Batch batch, long long tiles, long long slices, long long items,
                       long long block_rows, int bm, int bk, int features, int value_features,
                       const ScoreArgs<A> score_args) {
  __shared__ LaneDots<T, ROWS, MOST_WARPS> dots;
  __shared__ long long tile_keys[TILE];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int tile_rows = blockDim.x / 32 * ROWS;

  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const int first_column = (int)(item % slices) * (32 * COLUMNS) + lane;
    const int first_row = (int)(item / slices % tiles) * tile_rows;  // within the block row
    const long long i = item / slices / tiles % block_rows;
    const long long b = item / slices / tiles / block_rows;
    const INDEX* row_starts = batch_ptr<const INDEX>(indptr, batch, b);
    const INDEX* columns = batch_ptr<const INDEX>(indices, batch, b);
    const KernelScore<A> score(score_args, batch, b, b);
    const T* q = batch_ptr<const T>(query, batch, b) + (i * bm + first_row) * query.row;
    const T* k = batch_ptr<const T>(key, batch, b);
    const T* v = batch_ptr<const T>(value, batch, b) + first_column * value.col;
    const int rows_here = bm - first_row < tile_rows ? bm - first_row : tile_rows;
    const long long last_query = i * bm + first_row + rows_here - 1;
    const long long end = row_starts[(i + 1) * indptr.row];
    // this lane's key: column c of block p
    long long p = row_starts[i * indptr.row] + lane / bk;
    int c = lane % bk;

    RunningMaximum<A> maxima[ROWS];
    A sum[ROWS], acc[ROWS][COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      sum[r] = A(0);
#pragma unroll
      for (int t = 0; t < COLUMNS; ++t) acc[r][t] = A(0);
    }

    while (true) {
      const long long my_key = p < end ? (long long)columns[p * indices.row] * bk + c : -1;
      __syncthreads();  // the tile before this one has been used
      if (warp == 0) tile_keys[lane] = my_key;
      __syncthreads();
      // the pattern is canonical: keys ascend, so all that follow are masked for a causal query,
      // too
      if (tile_keys[0] < 0 || (score_args.causal && tile_keys[0] > last_query)) break;

      A dot[ROWS];
      dots(dot, q, query, rows_here, k, key, tile_keys, features);

      A weight[ROWS];
      unsigned attended[ROWS];  // a bit a key
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const int row = first_row + warp * ROWS + r;
        const long long j = i * bm + row;  // the query
        A x = dot[r];
        bool sees = score.logit(x, my_key >= 0 && row < bm, j, my_key, p, row * bk + c);
        const A highest = warp_max(sees ? x : minus_infinity<A>());  // a NaN is not higher
        const A shrink = maxima[r].raise(higher(maxima[r].top, highest));
        const A w = sees ? exp(x - maxima[r].base()) : A(0);
        sum[r] = sum[r] * shrink + warp_sum(w);
#pragma unroll
        for (int t = 0; t < COLUMNS; ++t) acc[r][t] *= shrink;
        sees = score.keeps(sees, j, my_key);
        weight[r] = to_acc(round_to<T>(w));
        attended[r] = __ballot_sync(ALL, sees);
      }

      add_listed(acc, weight, attended, my_key, v, value, value_features - first_column);

      p += TILE / bk;
      c += TILE % bk;
      if (c >= bk) {
        c -= bk;
        ++p;
      }
    }

    const A sink = SINKS ? *batch_ptr<const A>(sinks, batch, b) : minus_infinity<A>();
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int row = first_row + warp * ROWS + r;
      if (row >= bm) continue;
      const long long j = i * bm + row;
      const Normalizer<A, SINKS> normalizer(maxima[r].top, sum[r], sink, score_args.kept_scale);
      OUT* o = batch_ptr<OUT>(out, batch, b) + j * out.row;
#pragma unroll
      for (int t = 0; t < COLUMNS; ++t) {
        const int column = first_column + 32 * t;
        if (column < value_features)
          o[column * out.col] = round_to<OUT>(acc[r][t] * normalizer.share);
      }
      if (lse.ptr != nullptr && first_column == 0) {
        batch_ptr<A>(lse, batch, b)[j * lse.row] = normalizer.lse;
      }
    }
  }
}
