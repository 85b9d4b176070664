// 2:4 @ dense without tensor cores: every dtype, float32 in IEEE arithmetic (1:2), exact int8, and
// e4m3 before 8.9. To be read before semi_structured_addmm_sm80.cu.
//
// A thread block computes TILE_M x TILE_N outputs, as common/sparse_simt_tile.cuh says.
//
//   -DT dtype of the operands; -DOUT, -DEPILOGUE, -DACT (common/kernel_epilogue.cuh); -DTILE_N
#include "common/ceil_div.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/sparse_simt_tile.cuh"

using namespace sparsegpu;

constexpr int TILE_M = 64, DEPTH = 16;
typedef SparseSimtTile<T, TILE_M, TILE_N, DEPTH> Outputs;
typedef KernelEpilogue<Outputs::A, OUT> Op;
typedef Meta24<sizeof(T)>::type Meta;

struct SparseSimtProblem {
  long long m, n, packed_columns, terms, batches;
};

extern "C" __global__ void __launch_bounds__(Outputs::THREADS, 2)
    semi_structured_addmm_simt(const __grid_constant__ View out, const T* packed, const Meta* meta,
                               const __grid_constant__ View dense,
                               const __grid_constant__ Batch batch,
                               const __grid_constant__ SparseSimtProblem problem,
                               const __grid_constant__ Op::Args epilogue) {
  __shared__ Outputs::SharedTiles tiles;

  const long long row_tiles = ceil_div(problem.m, TILE_M);
  const long long column_tiles = ceil_div(problem.n, TILE_N);
  const long long count = row_tiles * column_tiles * problem.batches;

  // The grid covers all tiles unless they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const long long top = tile % row_tiles * TILE_M;
    const long long first_col = tile / row_tiles % column_tiles * TILE_N;
    const long long b = tile / row_tiles / column_tiles;
    const int rows = int(min((long long)TILE_M, problem.m - top));
    const int columns = int(min((long long)TILE_N, problem.n - first_col));
    const T* panel = batch_ptr<const T>(dense, batch, b) + first_col * dense.col;

    const PackedRows<T, long long> values = {packed, meta, top, problem.m, problem.packed_columns,
                                             rows};
    Outputs outputs;
    for (long long start = 0; start < problem.terms; start += DEPTH) {
      const int terms = int(min((long long)DEPTH, problem.terms - start));
      outputs.add(tiles, values, start, terms, panel, dense, columns);
    }
    outputs.write<Op>(out, batch, epilogue, b, top, first_col, rows, problem.n);
  }
}
