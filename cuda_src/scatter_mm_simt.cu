// Products of blocks, added where index lists say:
//
//     accumulators[tile] += sum over the tile's pairs (p, q) of blocks[p] @ others[q]
//
// Each tile has a list of pairs; their products laid end to end are one long sum of count * Ks
// terms, TILE_K of which are multiplied at a time (common/simt_tile.cuh), as in
// bsr_addmm_simt.cu. The lists come in three formats, -DFORMAT=pairs|strided|compressed
// (common/pair_sum.cuh).
//
// A thread block owns a TILE_M x TILE_N part of one tile of one batch. The sum is formed in the
// accumulator's precision and rounded once, with what was there. Tiles of one launch do not
// overlap (the caller ensures that), so nothing is added across thread blocks.
//
// -DT operands, -DINDEX of the lists, -DOUT of the accumulators, -DEPILOGUE
// (common/kernel_epilogue.cuh), -DTILE_M, -DTILE_N, -DTILE_K, -DLANES, -DGROUP_SIZE rows of parts
// that follow each other (common/pair_sum.cuh).
#include "common/kernel_epilogue.cuh"
#include "common/output_matrix.cuh"
#include "common/pair_sum.cuh"
#include "common/simt_tile.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
typedef SimtTile<A, TILE_M, TILE_N, TILE_K, LANES> Outputs;
constexpr ListFormat LIST_FORMAT = ListFormat::FORMAT;
typedef ScatterPart<LIST_FORMAT, TILE_M, TILE_N, GROUP_SIZE> Part;

// The batch of `blocks` is the stack of blocks. pairs: so is that of `others`, and that of
// accumulators (described by `batch`) is the stack of tiles.
extern "C" __global__ void __launch_bounds__(Outputs::THREADS, 1)
    scatter_mm_simt(const __grid_constant__ View accumulators, const __grid_constant__ View blocks,
                    const __grid_constant__ View others, const __grid_constant__ Lists<INDEX> lists,
                    const __grid_constant__ Batch batch,
                    const __grid_constant__ ScatterProblem problem,
                    const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  __shared__ Outputs::SharedTiles tiles;
  __shared__ long long block_at[TILE_K];  // where a term's column of the block starts ...
  __shared__ long long other_at[TILE_K];  // ... and the row of the other that it meets

  const long long parts = Part::count(problem);

  for (long long x = blockIdx.x; x < parts; x += gridDim.x) {
    const Part part(problem, x);
    const int rows = part.rows, columns = part.columns;

    const PairSum<LIST_FORMAT> tile(lists, problem, part.tile);
    const T* block = static_cast<const T*>(blocks.ptr) + part.first_row * blocks.row;
    const T* other = static_cast<const T*>(others.ptr) + part.first_col * others.col;
    if constexpr (LIST_FORMAT != ListFormat::pairs)
      other += batch_offset(others, batch, part.batch);

    Outputs outputs(accumulators.row < accumulators.col);
    const long long terms = (tile.end - tile.first) * problem.ks;
    for (long long start = 0; start < terms; start += TILE_K) {
      const int here = int(min((long long)TILE_K, terms - start));
      for (int k = threadIdx.x; k < here; k += Outputs::THREADS) {
        const long long g = tile.first + (start + k) / problem.ks;
        const int within = int((start + k) % problem.ks);
        tile.locate(lists, problem, blocks, others, g, block_at[k], other_at[k]);
        block_at[k] += within * blocks.col;
        other_at[k] += within * others.row;
      }
      __syncthreads();  // the offsets are known, and the last tiles are no longer read
      Outputs::fill(tiles.left, rows, here, blocks.col <= blocks.row,
                    [&](int m, int k) { return to_acc(block[block_at[k] + m * blocks.row]); });
      Outputs::fill(tiles.right, columns, here, others.row < others.col,
                    [&](int n, int k) { return to_acc(other[other_at[k] + n * others.col]); });
      __syncthreads();  // the tiles are filled, and the offsets are no longer read
      outputs.multiply(tiles, here);
    }

    const OutputMatrix<KernelEpilogue<A, OUT>> matrix(accumulators, batch, epilogue, part.batch);
    const long long top = tile.row + part.first_row, left = tile.col + part.first_col;
    outputs.finish(rows, columns,
                   [&](int m, int n, A sum) { matrix.store(sum, top + m, left + n); });
  }
}
