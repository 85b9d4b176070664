// BSR @ dense for every block size, dtype and stride: the kernel to read first.
//
//     out = act( beta * input + left_alpha[:, None] * (alpha * (bsr @ dense)) * right_alpha )
//
// The stored blocks of one block row, laid side by side, are a dense bm x (count * bk) matrix.
// The rows of `dense` that meet them, put one below the other, are a (count * bk) x N matrix, and
// the block row of the output is the product of the two:
//
//                       block p      p + 1     p + 2               dense
//     row of blocks  [ . . . . | . . . . | . . . . ]     rows  indices[p] * bk ...
//                                                              indices[p + 1] * bk ...
//                                                              indices[p + 2] * bk ...
//
// So one loop over "terms" 0 .. count * bk serves any block size: term t is column t % bk of block
// p + t / bk, and row indices[p + t / bk] * bk + t % bk of `dense`. Small blocks fill a tile of
// TILE_K terms as well as large ones do.
//
// A thread block owns (batch, block row, TILE_M rows of it, TILE_N columns). Nothing is added
// across thread blocks: the result is deterministic.
//
// -DTRANSPOSED=1 multiplies the transpose of a matrix without forming it: the pattern is the sorted
// one of the transpose, and its block p is number order[p] of data, column by column.
//
// -DT operands, -DINDEX of indptr and indices, -DOUT, -DEPILOGUE, -DACT
// (common/kernel_epilogue.cuh), -DTILE_M, -DTILE_N, -DTILE_K, -DLANES (common/simt_tile.cuh).
#include "common/kernel_epilogue.cuh"
#include "common/row_tile_scheduler.cuh"
#include "common/simt_tile.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
typedef SimtTile<A, TILE_M, TILE_N, TILE_K, LANES> Outputs;

// indptr, indices and order are vectors (`row` is their stride); a null indptr means an empty
// pattern, whose data is not read. data's blocks are contiguous; its view spans the batch
// only. order counts the blocks of all batches, one after the other, and is there if TRANSPOSED.
extern "C" __global__ void __launch_bounds__(Outputs::THREADS, 1)
    bsr_addmm_simt(const __grid_constant__ View out, const __grid_constant__ View indptr,
                   const __grid_constant__ View indices, const __grid_constant__ View order,
                   const __grid_constant__ View data, const __grid_constant__ View dense,
                   const __grid_constant__ Batch batch,
                   const __grid_constant__ BlockRowProblem problem,
                   const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  __shared__ Outputs::SharedTiles tiles;
  __shared__ long long block_at[TILE_K];  // where a term's column starts in data ...
  __shared__ long long dense_at[TILE_K];  // ... and its row in dense

  const int block_row_step = TRANSPOSED ? 1 : problem.bk;
  const int block_column_step = TRANSPOSED ? problem.bm : 1;
  const bool dense_by_column = dense.row < dense.col;
  const bool out_by_column = out.row < out.col;

  // A thread block takes several tiles only where they are more than a grid may have.
  typedef BlockRowTile<TILE_M, TILE_N> Tile;
  const long long count = Tile::count(problem);
  for (long long number = blockIdx.x; number < count; number += gridDim.x) {
    const Tile tile(number, problem);

    long long first_block = 0, terms = 0;
    const INDEX* column_of = nullptr;
    const long long* place_of = nullptr;
    long long first_place = 0;
    const T* block = nullptr;
    const T* panel = nullptr;
    if (indptr.ptr) {
      const INDEX* starts = tile.starts<INDEX>(indptr, batch);
      first_block = starts[0];
      terms = (long long)(starts[indptr.row] - starts[0]) * problem.bk;
      column_of = batch_ptr<const INDEX>(indices, batch, tile.batch);
      if constexpr (TRANSPOSED) {
        place_of = batch_ptr<const long long>(order, batch, tile.batch);
        first_place = batch_offset(order, batch, tile.batch);
      }
      block =
          batch_ptr<const T>(data, batch, tile.batch) + (long long)tile.first_row * block_row_step;
      panel = batch_ptr<const T>(dense, batch, tile.batch) + tile.first_col * dense.col;
    }

    Outputs outputs(out_by_column);
    for (long long start = 0; start < terms; start += TILE_K) {
      const int here = int(min((long long)TILE_K, terms - start));
      for (int k = threadIdx.x; k < here; k += Outputs::THREADS) {
        const long long p = first_block + (start + k) / problem.bk;
        const int within = int((start + k) % problem.bk);
        const long long place = TRANSPOSED ? place_of[p * order.row] - first_place : p;
        block_at[k] = place * problem.bm * problem.bk + within * block_column_step;
        dense_at[k] = ((long long)column_of[p * indices.row] * problem.bk + within) * dense.row;
      }
      __syncthreads();  // the offsets are known, and the last tiles are no longer read
      Outputs::fill(tiles.left, tile.rows, here, !TRANSPOSED, [&](int m, int k) {
        return to_acc(block[block_at[k] + (long long)m * block_row_step]);
      });
      Outputs::fill(tiles.right, tile.columns, here, dense_by_column,
                    [&](int n, int k) { return to_acc(panel[dense_at[k] + n * dense.col]); });
      __syncthreads();  // the tiles are filled, and the offsets are no longer read
      outputs.multiply(tiles, here);
    }

    const KernelEpilogue<A, OUT> finish(epilogue, batch, tile.batch);
    OUT* out_matrix = batch_ptr<OUT>(out, batch, tile.batch);
    outputs.finish(tile.rows, tile.columns, [&](int m, int n, A sum) {
      const long long row = tile.top + m, column = tile.first_col + n;
      out_matrix[element_offset(out, row, column)] = finish(sum, row, column);
    });
  }
}
