// The gradient of what a mask adds to attention's scores, at its stored elements.
//
// A thread block takes up to MOST_WARPS * ROWS queries and TILE = 32 keys of one stored block, a
// lane a key, and adds up what each of the `shares` heads that read the block gives: one after the
// other, so that the bits are the same every run. delta is what bsr_attention_backward_simt.cu
// left.
//
// -DT: bf16, f16, f32, f64; -DINDEX: s32, s64; -DROWS: queries a warp; the score's in
// kernel_score.cuh.

#include "common/kernel_score.cuh"
#include "common/lane_rows.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr int TILE = 32;
constexpr int MOST_WARPS = 4;

struct MaskProblem {
  long long row_tiles, key_tiles, items, blocks, shares;
  int bm, bk, features, value_features;
};

extern "C" __global__ void __launch_bounds__(MOST_WARPS * 32, 1)
    bsr_attention_backward_mask(const View gradient, const View query, const View key,
                                const View value, const View grad, const View lse, const View delta,
                                const View block_rows, const View indices, const Batch batch,
                                const __grid_constant__ MaskProblem problem,
                                const __grid_constant__ ScoreArgs<A> score_args) {
  __shared__ LaneDots<T, ROWS, MOST_WARPS> dots;
  __shared__ long long tile_keys[TILE];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int tile_rows = blockDim.x / 32 * ROWS;

  for (long long item = blockIdx.x; item < problem.items; item += gridDim.x) {
    const int c = (int)(item % problem.key_tiles) * TILE + lane;
    const int first_row = (int)(item / problem.key_tiles % problem.row_tiles) * tile_rows;
    const long long p = item / problem.key_tiles / problem.row_tiles % problem.blocks;
    const long long first =
        item / problem.key_tiles / problem.row_tiles / problem.blocks * problem.shares;
    const int rows_here = problem.bm - first_row < tile_rows ? problem.bm - first_row : tile_rows;
    const INDEX i = batch_ptr<const INDEX>(block_rows, batch, first)[p * block_rows.row];
    const INDEX j = batch_ptr<const INDEX>(indices, batch, first)[p * indices.row];
    const long long first_query = (long long)i * problem.bm + first_row;
    const long long mine = c < problem.bk ? (long long)j * problem.bk + c : -1;

    __syncthreads();  // the keys of the item before this one have been used
    if (warp == 0) tile_keys[lane] = mine;
    A sums[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums[r] = A(0);

    for (long long b = first; b < first + problem.shares; ++b) {
      // delta is contiguous in the order of the heads, so its place says a head's number.
      const long long number = batch_offset(delta, batch, b) / score_args.queries;
      const KernelScore<A> score(score_args, batch, b, number);
      const A* normalisers = batch_ptr<const A>(lse, batch, b);
      const A* deltas = batch_ptr<const A>(delta, batch, b);
      A dot[ROWS], dweight[ROWS];
      __syncthreads();
      dots(dot, batch_ptr<const T>(query, batch, b) + first_query * query.row, query, rows_here,
           batch_ptr<const T>(key, batch, b), key, tile_keys, problem.features);
      __syncthreads();
      dots(dweight, batch_ptr<const T>(grad, batch, b) + first_query * grad.row, grad, rows_here,
           batch_ptr<const T>(value, batch, b), value, tile_keys, problem.value_features);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const int row = warp * ROWS + r;
        if (row >= rows_here) continue;
        const long long place = first_query + row;
        const auto pair = score.pair(dot[r], dweight[r], mine >= 0, place, mine, p,
                                     (first_row + row) * problem.bk + c,
                                     normalisers[place * lse.row], deltas[place * delta.row]);
        sums[r] += pair.dlogit;
      }
    }

    f32* result = batch_ptr<f32>(gradient, batch, first) + p * gradient.row;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int row = warp * ROWS + r;
      if (row < rows_here && mine >= 0) {
        result[((first_row + row) * problem.bk + c) * gradient.col] = round_to<f32>(sums[r]);
      }
    }
  }
}
