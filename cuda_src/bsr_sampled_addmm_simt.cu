// Dense @ dense, computed at the stored blocks only:
//
//     out[p] = beta * input[p] + alpha * (mat1 @ mat2)[block p's rows, block p's columns]
//
// A thread block owns a TILE_M x TILE_N part of one stored block of one batch and loops over the
// inner dimension, TILE_K terms at a time (common/simt_tile.cuh). Deterministic: nothing is added
// across thread blocks.
//
// -DT operands, -DINDEX of rows and indices, -DOUT, -DEPILOGUE (common/kernel_epilogue.cuh),
// -DTILE_M, -DTILE_N, -DTILE_K, -DLANES.
#include "common/ceil_div.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/output_matrix.cuh"
#include "common/simt_tile.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
typedef SimtTile<A, TILE_M, TILE_N, TILE_K, LANES> Outputs;

struct SampledBlocks {
  long long blocks;  // of all batches
  long long k;       // 0: the matrices are not read
  int bm, bn;
};

// out and the epilogue's input are (bm, bn) matrices with the batch shape (*batch, nnzb). The
// other operands have the same batch shape, with stride 0 along nnzb; rows and indices hold the
// block row and the block column of each block.
extern "C" __global__ void __launch_bounds__(Outputs::THREADS, 1)
    bsr_sampled_addmm_simt(const __grid_constant__ View out, const __grid_constant__ View rows_of,
                           const __grid_constant__ View indices, const __grid_constant__ View mat1,
                           const __grid_constant__ View mat2, const __grid_constant__ Batch batch,
                           const __grid_constant__ SampledBlocks problem,
                           const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  __shared__ Outputs::SharedTiles tiles;

  const int row_slices = ceil_div(problem.bm, TILE_M);
  const int col_slices = ceil_div(problem.bn, TILE_N);
  const long long tile_count = problem.blocks * row_slices * col_slices;
  const bool mat1_by_row = mat1.col <= mat1.row;
  const bool mat2_by_column = mat2.row < mat2.col;

  for (long long x = blockIdx.x; x < tile_count; x += gridDim.x) {
    const int first_row = int(x % row_slices) * TILE_M;  // within the block
    const int first_col = int(x / row_slices % col_slices) * TILE_N;
    const long long p = x / row_slices / col_slices;  // batches times nnzb
    const int rows = min(TILE_M, problem.bm - first_row);
    const int columns = min(TILE_N, problem.bn - first_col);
    const long long i = *batch_ptr<const INDEX>(rows_of, batch, p);
    const long long j = *batch_ptr<const INDEX>(indices, batch, p);
    const T* left = batch_ptr<const T>(mat1, batch, p) + (i * problem.bm + first_row) * mat1.row;
    const T* right = batch_ptr<const T>(mat2, batch, p) + (j * problem.bn + first_col) * mat2.col;

    Outputs outputs(out.row < out.col);
    for (long long start = 0; start < problem.k; start += TILE_K) {
      const int here = int(min((long long)TILE_K, problem.k - start));
      __syncthreads();  // the last tiles are no longer read
      Outputs::fill(tiles.left, rows, here, mat1_by_row, [&](int m, int k) {
        return to_acc(left[m * mat1.row + (start + k) * mat1.col]);
      });
      Outputs::fill(tiles.right, columns, here, mat2_by_column, [&](int n, int k) {
        return to_acc(right[(start + k) * mat2.row + n * mat2.col]);
      });
      __syncthreads();  // the tiles are filled
      outputs.multiply(tiles, here);
    }

    const OutputMatrix<KernelEpilogue<A, OUT>> out_block(out, batch, epilogue, p);
    outputs.finish(rows, columns, [&](int m, int n, A sum) {
      out_block.store(sum, first_row + m, first_col + n);
    });
  }
}
