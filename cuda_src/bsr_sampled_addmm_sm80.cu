// Dense @ dense at the stored blocks on tensor cores through mma.sync (8.0 and later): bfloat16,
// float16, int8, and float32 as TF32 where the caller allows it.
//
// bsr_sampled_addmm_simt.cu, to be read first, says what is computed. Here the blocks that follow
// each other in a block row are computed together: a thread block takes TILE_M rows of mat1 once
// for TILE_N columns of mat2, which it gathers from the columns of these blocks, so that the
// fragments of small blocks are full, too (common/sampled_tile.cuh). Slices of 64 bytes of k pass
// through a pipeline of STAGES. Deterministic: nothing is added across thread blocks.
//
// Either matrix may lie along k or, in 16-bit types, across it (Lines, common/view.cuh): then
// vectors of its other dimension are whole within a block.
//
//   -DT, -DINDEX, -DOUT, -DEPILOGUE as in bsr_sampled_addmm_simt.cu
//   -DBN                            columns of a block
//   -DMAT1, -DMAT2=along|across     how 16-byte vectors of mat1 and mat2 lie
//   -DTILE_M, -DTILE_N              outputs of a thread block, shared by WARPS_M x WARPS_N warps
//   -DSTAGES
#include "bsr_sampled_addmm_sm80/lines_cp_async.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/sampled_tile.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr int SLICE_K = 64 / sizeof(T);  // terms of a slice
constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
// Thread blocks of a multiprocessor that its 65536 registers suffice for.
constexpr int REGISTERS = WARP_M * WARP_N > 2048 ? 256 : 128;
constexpr int RESIDENT = REGISTERS * THREADS < 65536 ? 65536 / (REGISTERS * THREADS) : 1;
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "a warp multiplies 16 x 16 outputs at a time");

typedef SampledTile<TILE_M, TILE_N, BN> Tile;
typedef LinesCpAsync<T, Lines::MAT1, TILE_M, SLICE_K, THREADS> Left;
typedef LinesCpAsync<T, Lines::MAT2, TILE_N, SLICE_K, THREADS> Right;
typedef WarpOutputs<A, WARP_M, WARP_N, WARPS_N> Outputs;
constexpr int STAGE_BYTES = Left::Tile::BYTES + Right::Tile::BYTES;
constexpr int STAGING_PITCH = WARP_N + 8;  // of sixteen rows of a warp's outputs
static_assert(WARPS_M * WARPS_N * 16 * STAGING_PITCH * 4 <= STAGES * STAGE_BYTES,
              "the staged outputs fit where the stages were");

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    bsr_sampled_addmm_sm80(const __grid_constant__ View out, const __grid_constant__ View indptr,
                           const __grid_constant__ View indices, const __grid_constant__ View mat1,
                           const __grid_constant__ View mat2, const __grid_constant__ Batch batch,
                           const __grid_constant__ SampledProblem problem,
                           const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  extern __shared__ __align__(128) unsigned char dynamic[];
  const Tile tile(blockIdx.x, indptr, batch, problem, INDEX());
  if (tile.blocks == 0) return;

  const long long first_term = tile.first_term(problem), terms = tile.terms(problem);
  const long long matrix = tile.matrix(problem);
  const T* rows = batch_ptr<const T>(mat1, batch, matrix) +
                  (tile.block_row * problem.bm + tile.first_row) * mat1.row + first_term * mat1.col;
  const T* columns = batch_ptr<const T>(mat2, batch, matrix) + first_term * mat2.row;
  const INDEX* column_of =
      batch_ptr<const INDEX>(indices, batch, matrix) + tile.first_block * indices.row;
  Left left(mat1.col, [&](int line) {
    return problem.k > 0 && line < tile.rows ? rows + line * mat1.row : nullptr;
  });
  Right right(mat2.row, [&](int line) -> const T* {
    if (problem.k == 0 || line >= tile.columns) return nullptr;
    const long long column = column_of[tile.block_of(line) * indices.row];
    return columns + (column * BN + tile.column_in_block(line)) * mat2.col;
  });

  Outputs outputs;
  CpAsyncPipeline<STAGES, STAGE_BYTES> pipeline;
  auto load = [&](long long to_load) {
    if (to_load > 0) {
      const int here = int(min(to_load, (long long)SLICE_K));
      left.load(dynamic + pipeline.stage, here);
      right.load(dynamic + pipeline.stage + Left::Tile::BYTES, here);
    }
    pipeline.advance();
  };
#pragma unroll 1
  for (int step = 0; step < STAGES - 1; ++step) load(terms - step * SLICE_K);
#pragma unroll 1
  for (long long to_multiply = terms; to_multiply > 0; to_multiply -= SLICE_K) {
    pipeline.wait();
    load(to_multiply - (STAGES - 1) * SLICE_K);
    multiply_slice<Left::Tile, Right::Tile>(outputs, dynamic + pipeline.stage,
                                            dynamic + pipeline.stage + Left::Tile::BYTES);
  }
  pipeline.drain();

  const SampledOutputs<A, KernelEpilogue<A, OUT>, Tile> results(tile, out, batch, problem,
                                                                epilogue);
  A* staged = reinterpret_cast<A*>(dynamic) + threadIdx.x / 32 * 16 * STAGING_PITCH;
#pragma unroll
  for (int i = 0; i < WARP_M / 16; ++i) {
    outputs.sixteen_rows(i, [&](int m, int n, A sum) { staged[m * STAGING_PITCH + n] = sum; });
    __syncwarp();
    results.store<WARP_N>(staged, STAGING_PITCH, outputs.row + 16 * i, outputs.col);
    __syncwarp();
  }
}
