// BSR @ dense of blocks that are 2:4 (float32: 1:2) themselves, without tensor cores: every dtype,
// block and stride; float32 in IEEE arithmetic, exact int8.
//
//     out = act( beta * input + left_alpha[:, None] * (alpha * (bsr @ dense)) * right_alpha )
//
// The packed blocks of a block row, side by side, are a row of count * bk / 2 packed terms
// (in bsr_addmm_simt.cu: count * bk terms). Each term is multiplied by the row of `dense` that its
// code points at, as in semi_structured_addmm_simt.cu.
//
// A thread block computes TILE_M x TILE_N outputs of a block row, as common/sparse_simt_tile.cuh
// says; the packed terms that come at a time are of one block.
//
//   -DT of the operands, -DINDEX of indptr and indices; -DOUT, -DEPILOGUE, -DACT
//   (common/kernel_epilogue.cuh); -DTILE_N
#include "common/kernel_epilogue.cuh"
#include "common/row_tile_scheduler.cuh"
#include "common/sparse_simt_tile.cuh"

using namespace sparsegpu;

// The packed rows of a block are whole pairs of metadata columns, 32 bytes each: so DEPTH values,
// 16 or 32 bytes, never span two blocks.
constexpr int TILE_M = 32, DEPTH = sizeof(T) == 4 ? 8 : 16;
typedef SparseSimtTile<T, TILE_M, TILE_N, DEPTH> Outputs;
typedef KernelEpilogue<Outputs::A, OUT> Op;
typedef Meta24<sizeof(T)>::type Meta;

// indptr and indices are vectors (`row` is their stride); a null indptr means an empty pattern,
// whose blocks are not read. Blocks are contiguous; the views of packed and meta span the batch
// only. The minimum of thread blocks hides the latency of loads; without it the compiler spills.
extern "C" __global__ void __launch_bounds__(Outputs::THREADS, sizeof(T) == 4 ? 5 : 6)
    bsr_semi_structured_addmm_simt(
        const __grid_constant__ View out, const __grid_constant__ View indptr,
        const __grid_constant__ View indices, const __grid_constant__ View packed,
        const __grid_constant__ View meta, const __grid_constant__ View dense,
        const __grid_constant__ Batch batch, const __grid_constant__ BlockRowProblem problem,
        const __grid_constant__ Op::Args epilogue) {
  __shared__ Outputs::SharedTiles tiles;

  const int half = problem.bk / 2;
  const long long block_values = (long long)problem.bm * half;
  const long long block_meta = (long long)problem.bm * (problem.bk / Outputs::Format::elements);

  // A thread block takes several tiles only where they are more than a grid may have.
  typedef BlockRowTile<TILE_M, TILE_N> Tile;
  const long long count = Tile::count(problem);
  for (long long number = blockIdx.x; number < count; number += gridDim.x) {
    const Tile tile(number, problem);
    Outputs outputs;
    long long p = 0, last = 0;
    if (indptr.ptr) {
      const INDEX* starts = tile.starts<INDEX>(indptr, batch);
      p = starts[0];
      last = starts[indptr.row];
    }
    for (; p < last; ++p) {
      const PackedRows<T, int> block = {
          batch_ptr<const T>(packed, batch, tile.batch) + p * block_values,
          batch_ptr<const Meta>(meta, batch, tile.batch) + p * block_meta,
          tile.first_row,
          problem.bm,
          half,
          tile.rows};
      const long long column = batch_ptr<const INDEX>(indices, batch, tile.batch)[p * indices.row];
      const T* panel = batch_ptr<const T>(dense, batch, tile.batch) +
                       column * problem.bk * dense.row + tile.first_col * dense.col;
      for (int start = 0; start < half; start += DEPTH)
        outputs.add(tiles, block, start, DEPTH, panel, dense, tile.columns);
    }
    outputs.write<Op>(out, batch, epilogue, tile.batch, tile.top, tile.first_col, tile.rows,
                      problem.n);
  }
}
