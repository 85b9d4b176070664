// 2:4 @ dense without tensor cores: every dtype, float32 in IEEE arithmetic (1:2), exact int8, and
// e4m3 before 8.9. To be read before semi_structured_addmm_sm80.cu.
//
// A thread block computes TILE_M x TILE_N outputs, as common/sparse_simt.cuh says.
//
//   -DT dtype of the operands; -DOUT, -DEPILOGUE, -DACT as in common/epilogue.cuh; -DTILE_N
#include "common/sparse_simt.cuh"

using namespace sparsegpu;

constexpr int TILE_M = 64, DEPTH = 16;
typedef SparseSums<TILE_M, DEPTH> Sums;

struct Sizes {
  long long m, n, packed_columns, terms, batches;
};

extern "C" __global__ void __launch_bounds__(Sums::THREADS, 2)
    semi_structured_addmm_simt(const __grid_constant__ View out, const T* packed, const Meta* meta,
                               const __grid_constant__ View dense,
                               const __grid_constant__ Batch batch,
                               const __grid_constant__ Sizes sizes,
                               const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  __shared__ SparseTiles<TILE_M, DEPTH> tiles;

  const long long row_tiles = (sizes.m + TILE_M - 1) / TILE_M;
  const long long column_tiles = (sizes.n + TILE_N - 1) / TILE_N;
  const long long count = row_tiles * column_tiles * sizes.batches;

  // The grid covers all tiles unless they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const long long top = tile % row_tiles * TILE_M;
    const long long first_col = tile / row_tiles % column_tiles * TILE_N;
    const long long b = tile / row_tiles / column_tiles;
    const int rows = int(min((long long)TILE_M, sizes.m - top));
    const int columns = int(min((long long)TILE_N, sizes.n - first_col));
    const T* panel = batch_ptr<const T>(dense, batch, b) + first_col * dense.col;

    const PackedRows<long long> values = {packed, meta, top, sizes.m, sizes.packed_columns, rows};
    Sums sums;
    for (long long start = 0; start < sizes.terms; start += DEPTH) {
      const int terms = int(min((long long)DEPTH, sizes.terms - start));
      sums.add(tiles, values, start, terms, panel, dense, columns);
    }
    sums.write(out, batch, epilogue, b, top, first_col, rows, sizes.n);
  }
}
