// Gradients of attention's query, key or value, over the stored blocks of a mask.
//
// As bsr_attention_simt.cu: a thread block takes up to MOST_WARPS * ROWS rows of one block row of
// its own matrix and loops over the rows of the other side, TILE = 32 at a time, a lane each. For
// the gradient of query the rows are queries, which meet the keys of their block row; for those of
// key and value they are keys, which meet the queries of their block column: then `starts` and
// `indices` are those of the transposed pattern, and `blocks` says which stored block is meant.
// Scores are computed again, and become weights by lse.
//
// An operand may be read by several heads: `shares` heads in a row of the batch, as the host orders
// it, add to one gradient, one after the other, in registers. So every element is written once, in
// one order of summation: the same bits every run.
//
// With GRADIENT = query, delta = rowsum(grad * out) - grad_lse is computed first and left for the
// kernels that follow.
//
// -DT: bf16, f16, f32, f64; -DGRADIENT: query, key, value; -DINDEX: s32, s64; -DROWS: rows a warp;
// -DCOLUMNS: columns of the gradient a lane; the score's in kernel_score.cuh.

#include "common/kernel_score.cuh"
#include "common/lane_rows.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

enum class Gradient { query, key, value };
constexpr Gradient WANTED = Gradient::GRADIENT;
constexpr bool BY_QUERIES = WANTED == Gradient::query;

constexpr int TILE = 32;
constexpr int MOST_WARPS = 4;

// What is the same for every head. `own` rows of a block belong to the gradient's operand.
struct BackwardProblem {
  long long tiles, slices, items, groups, shares;
  int own, other, features, value_features;
};

extern "C" __global__ void __launch_bounds__(MOST_WARPS * 32, 1)
    bsr_attention_backward_simt(const View gradient, const View query, const View key,
                                const View value, const View grad, const View out, const View lse,
                                const View grad_lse, const View delta, const View starts,
                                const View indices, const View blocks, const Batch batch,
                                const __grid_constant__ BackwardProblem problem,
                                const __grid_constant__ ScoreArgs<A> score_args) {
  __shared__ LaneDots<T, ROWS, MOST_WARPS> dots;
  __shared__ long long tile_others[TILE];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int tile_rows = blockDim.x / 32 * ROWS;
  const int own = problem.own, other = problem.other;
  const int width = WANTED == Gradient::value ? problem.value_features : problem.features;

  for (long long item = blockIdx.x; item < problem.items; item += gridDim.x) {
    const int first_column = (int)(item % problem.slices) * (32 * COLUMNS) + lane;
    const int first_row = (int)(item / problem.slices % problem.tiles) * tile_rows;
    const long long i = item / problem.slices / problem.tiles % problem.groups;
    const long long first = item / problem.slices / problem.tiles / problem.groups * problem.shares;
    const int rows_here = own - first_row < tile_rows ? own - first_row : tile_rows;
    const long long own_start = i * own + first_row;

    A sums[ROWS][COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int t = 0; t < COLUMNS; ++t) sums[r][t] = A(0);

    for (long long b = first; b < first + problem.shares; ++b) {
      const T* q = batch_ptr<const T>(query, batch, b);
      const T* k = batch_ptr<const T>(key, batch, b);
      const T* v = batch_ptr<const T>(value, batch, b);
      const T* g = batch_ptr<const T>(grad, batch, b);
      const A* normalisers = batch_ptr<const A>(lse, batch, b);
      A* deltas = batch_ptr<A>(delta, batch, b);
      // delta is contiguous in the order of the heads, so its place says a head's number.
      const long long number = batch_offset(delta, batch, b) / score_args.queries;
      const KernelScore<A> score(score_args, batch, b, number);
      const INDEX* group_starts = batch_ptr<const INDEX>(starts, batch, b);
      const INDEX* places = batch_ptr<const INDEX>(indices, batch, b);
      const long long* stored =
          blocks.ptr == nullptr ? nullptr : batch_ptr<const long long>(blocks, batch, b);

      A own_lse[ROWS], own_delta[ROWS];  // of queries
      if constexpr (BY_QUERIES) {
        const T* o = batch_ptr<const T>(out, batch, b);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          const int row = warp * ROWS + r;
          A sum = A(0);
          own_lse[r] = A(0);
          if (row < rows_here) {
            const long long j = own_start + row;
            for (int e = lane; e < problem.value_features; e += 32) {
              sum = fma_acc(to_acc(g[j * grad.row + e * grad.col]),
                            to_acc(o[j * out.row + e * out.col]), sum);
            }
            own_lse[r] = normalisers[j * lse.row];
          }
          sum = warp_sum(sum);
          if (row < rows_here) {
            const long long j = own_start + row;
            if (grad_lse.ptr != nullptr) {
              sum -= batch_ptr<const A>(grad_lse, batch, b)[j * grad_lse.row];
            }
            if (lane == 0 && first_column == 0) deltas[j * delta.row] = sum;
          }
          own_delta[r] = sum;
        }
      }

      const long long end = group_starts[(i + 1) * starts.row];
      // this lane's row of the other side: row c of block p
      long long p = group_starts[i * starts.row] + lane / other;
      int c = lane % other;

      while (true) {
        const long long mine = p < end ? (long long)places[p * indices.row] * other + c : -1;
        __syncthreads();  // the tile before this one has been used
        if (warp == 0) tile_others[lane] = mine;
        __syncthreads();
        if (tile_others[0] < 0) break;
        bool skip = false;  // the same in all threads
        if (score_args.causal) {
          // The other side's rows ascend: for queries all keys that follow come too late, for keys
          // all queries up to now too early.
          if (BY_QUERIES && tile_others[0] > own_start + rows_here - 1) break;
          skip = !BY_QUERIES && tile_others[TILE - 1] >= 0 && tile_others[TILE - 1] < own_start;
        }
        if (!skip) {
          A dot[ROWS], dweight[ROWS];
          const T* left = BY_QUERIES ? q + own_start * query.row : k + own_start * key.row;
          dots(dot, left, BY_QUERIES ? query : key, rows_here, BY_QUERIES ? k : q,
               BY_QUERIES ? key : query, tile_others, problem.features);
          if constexpr (WANTED != Gradient::value) {
            __syncthreads();
            left = BY_QUERIES ? g + own_start * grad.row : v + own_start * value.row;
            dots(dweight, left, BY_QUERIES ? grad : value, rows_here, BY_QUERIES ? v : g,
                 BY_QUERIES ? value : grad, tile_others, problem.value_features);
          }

          long long block = p;
          if (stored != nullptr && mine >= 0) block = stored[p * blocks.row];
          A lane_lse = A(0), lane_delta = A(0);
          if (!BY_QUERIES && mine >= 0) {
            lane_lse = normalisers[mine * lse.row];
            if constexpr (WANTED == Gradient::key) lane_delta = deltas[mine * delta.row];
          }
          A weight[ROWS];
          unsigned counts[ROWS];  // a bit a lane
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const int row = warp * ROWS + r;
            const long long j = own_start + row;
            const bool inside = mine >= 0 && row < rows_here;
            const int in_block = first_row + row;
            const auto pair = score.pair(
                dot[r], WANTED == Gradient::value ? A(0) : dweight[r], inside,
                BY_QUERIES ? j : mine, BY_QUERIES ? mine : j, block,
                BY_QUERIES ? in_block * other + c : c * own + in_block,
                BY_QUERIES ? own_lse[r] : lane_lse, BY_QUERIES ? own_delta[r] : lane_delta);
            if constexpr (WANTED == Gradient::value) {
              weight[r] = pair.weight;
            } else {
              weight[r] = pair.attended ? pair.dlogit * score.derivative(dot[r]) : A(0);
            }
            const bool counted = WANTED == Gradient::value ? pair.kept : pair.attended;
            counts[r] = __ballot_sync(~0u, counted);
          }
          const View& rows = BY_QUERIES ? key : WANTED == Gradient::key ? query : grad;
          const T* others = BY_QUERIES ? k : WANTED == Gradient::key ? q : g;
          add_listed(sums, weight, counts, mine, others + first_column * rows.col, rows,
                     width - first_column);
        }

        p += TILE / other;
        c += TILE % other;
        if (c >= other) {
          c -= other;
          ++p;
        }
      }
    }

    T* result = batch_ptr<T>(gradient, batch, first);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int row = warp * ROWS + r;
      if (row >= rows_here) continue;
#pragma unroll
      for (int t = 0; t < COLUMNS; ++t) {
        const int column = first_column + 32 * t;
        if (column < width) {
          result[(own_start + row) * gradient.row + column * gradient.col] =
              round_to<T>(sums[r][t]);
        }
      }
    }
  }
}
