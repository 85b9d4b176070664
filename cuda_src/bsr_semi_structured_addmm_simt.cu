// BSR @ dense of blocks that are 2:4 (float32: 1:2) themselves, without tensor cores: every dtype,
// block and stride; float32 in IEEE arithmetic, exact int8.
//
//     out = act( beta * input + left_alpha[:, None] * (alpha * (bsr @ dense)) * right_alpha )
//
// The packed blocks of a block row, laid side by side, are a row of count * bk / 2 packed terms, as
// the blocks of bsr_addmm_simt.cu are of whole ones. Each term meets the row of `dense` that its
// code points at, as in semi_structured_addmm_simt.cu.
//
// A thread block computes TILE_M x TILE_N outputs of a block row, as common/sparse_simt.cuh says;
// the packed terms that come at a time are of one block.
//
//   -DT of the operands, -DINDEX of indptr and indices; -DOUT, -DEPILOGUE, -DACT as in
//   common/epilogue.cuh; -DTILE_N
#include "common/block_row_tiles.cuh"
#include "common/sparse_simt.cuh"

using namespace sparsegpu;

// A pair of columns of metadata says what 32 bytes of packed values are of: no tile of that, or of
// half of it, is of two blocks.
constexpr int TILE_M = 32, DEPTH = sizeof(T) == 4 ? 8 : 16;
typedef SparseSums<TILE_M, DEPTH> Sums;

// indptr and indices are vectors (`row` is their stride); a null indptr means an empty pattern,
// whose blocks are not looked at. Blocks are contiguous; the views of packed and meta span the
// batch only. So many thread blocks hide the loads; told of no number, the compiler spills.
extern "C" __global__ void __launch_bounds__(Sums::THREADS, sizeof(T) == 4 ? 5 : 6)
    bsr_semi_structured_addmm_simt(
        const __grid_constant__ View out, const __grid_constant__ View indptr,
        const __grid_constant__ View indices, const __grid_constant__ View packed,
        const __grid_constant__ View meta, const __grid_constant__ View dense,
        const __grid_constant__ Batch batch, const __grid_constant__ Sizes sizes,
        const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  __shared__ SparseTiles<TILE_M, DEPTH> tiles;

  const int half = sizes.bk / 2;
  const long long block_values = (long long)sizes.bm * half;
  const long long block_meta = (long long)sizes.bm * (sizes.bk / Format::elements);

  // A thread block takes several tiles only where they are more than a grid may have.
  typedef Tile<TILE_M, TILE_N> Tile;
  const long long count = Tile::count(sizes);
  for (long long number = blockIdx.x; number < count; number += gridDim.x) {
    const Tile tile(number, sizes);
    Sums sums;
    long long p = 0, last = 0;
    if (indptr.ptr) {
      const INDEX* starts =
          batch_ptr<const INDEX>(indptr, batch, tile.batch) + tile.block_row * indptr.row;
      p = starts[0];
      last = starts[indptr.row];
    }
    for (; p < last; ++p) {
      const PackedRows<int> block = {
          batch_ptr<const T>(packed, batch, tile.batch) + p * block_values,
          batch_ptr<const Meta>(meta, batch, tile.batch) + p * block_meta,
          tile.first_row,
          sizes.bm,
          half,
          tile.rows};
      const long long column = batch_ptr<const INDEX>(indices, batch, tile.batch)[p * indices.row];
      const T* panel = batch_ptr<const T>(dense, batch, tile.batch) +
                       column * sizes.bk * dense.row + tile.first_col * dense.col;
      for (int start = 0; start < half; start += DEPTH)
        sums.add(tiles, block, start, DEPTH, panel, dense, tile.columns);
    }
    sums.write(out, batch, epilogue, tile.batch, tile.top, tile.first_col, tile.rows,
               sizes.columns);
  }
}
