// Sparse times sparse without tensor cores: any block size, every dtype. The kernel to read first.
//
//     block g of the result = sum over its pairs (p, q) of left block p @ right block q
//
// The pairs are known (common/block_pairs.cuh). Their products laid end to end are one long sum of
// count * bk terms, TILE_K of which are multiplied at a time (common/simt_tile.cuh). A thread block
// owns a TILE_M x TILE_N part of a block, which is rounded once.
//
// -DT operands, -DOUT result, -DPAIR of the pairs (s32, s64), -DTILE_M, -DTILE_N, -DTILE_K,
// -DLANES.
#include "common/block_pairs.cuh"
#include "common/ceil_div.cuh"
#include "common/simt_tile.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
typedef SimtTile<A, TILE_M, TILE_N, TILE_K, LANES> Outputs;

extern "C" __global__ void __launch_bounds__(Outputs::THREADS, 1)
    bsr_spgemm_simt(OUT* out, const T* a, const T* b, const long long* starts, const PAIR* pairs,
                    const __grid_constant__ PairsProblem problem) {
  __shared__ Outputs::SharedTiles tiles;
  __shared__ long long left_at[TILE_K];   // where a term's column of the left block starts ...
  __shared__ long long right_at[TILE_K];  // ... and the row of the right block that it meets

  const int bm = problem.bm, bk = problem.bk, bn = problem.bn;
  const int row_slices = ceil_div(bm, TILE_M), col_slices = ceil_div(bn, TILE_N);
  const long long tile_count = problem.blocks * row_slices * col_slices;
  for (long long x = blockIdx.x; x < tile_count; x += gridDim.x) {
    const int first_row = int(x % row_slices) * TILE_M;
    const int first_col = int(x / row_slices % col_slices) * TILE_N;
    const long long g = problem.first + x / row_slices / col_slices;
    const int rows = min(TILE_M, bm - first_row), columns = min(TILE_N, bn - first_col);
    const long long begin = starts[g] - problem.base;
    const long long terms = (starts[g + 1] - problem.base - begin) * bk;
    Outputs outputs(false);
    for (long long start = 0; start < terms; start += TILE_K) {
      const int here = int(min((long long)TILE_K, terms - start));
      for (int k = threadIdx.x; k < here; k += Outputs::THREADS) {
        const long long i = begin + (start + k) / bk;
        const int within = int((start + k) % bk);
        left_at[k] = ((long long)pairs[2 * i] * bm + first_row) * bk + within;
        right_at[k] = ((long long)pairs[2 * i + 1] * bk + within) * bn + first_col;
      }
      __syncthreads();  // the offsets are known, and the last tiles are no longer read
      Outputs::fill(tiles.left, rows, here, true,
                    [&](int m, int k) { return to_acc(a[left_at[k] + (long long)m * bk]); });
      Outputs::fill(tiles.right, columns, here, false,
                    [&](int n, int k) { return to_acc(b[right_at[k] + n]); });
      __syncthreads();  // the tiles are filled, and the offsets are no longer read
      outputs.multiply(tiles, here);
    }
    OUT* block = out + g * bm * bn + (long long)first_row * bn + first_col;
    outputs.finish(rows, columns,
                   [&](int m, int n, A sum) { block[m * bn + n] = round_to<OUT>(sum); });
  }
}
