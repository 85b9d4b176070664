// Dense @ dense at the stored blocks in float32, by multiply-adds of register tiles.
//
// bsr_sampled_addmm_simt.cu, to be read first, says what is computed. Here the blocks that follow
// each other in a block row are computed together (common/sampled_tile.cuh): a thread block takes
// TILE_M rows of mat1 once for TILE_N columns of mat2, which it gathers from the columns of these
// blocks. Slices of TILE_K terms pass through a pipeline of STAGES, as left[k][m] and right[k][n],
// and are multiplied by common/warp_fma.cuh.
//
// Copies are asynchronous for any strides (CopyOrder, of left[k][m] and right[k][n]): single
// elements may lie anywhere, and are transposed where k is contiguous. Where each column of mat2
// begins is kept in shared memory, since registers hold sums. Deterministic: nothing is added
// across thread blocks.
//
//   -DT (f32), -DINDEX, -DOUT, -DEPILOGUE as in bsr_sampled_addmm_simt.cu
//   -DBM, -DBN                             size of a block
//   -DMAT1, -DMAT2=vectors|rows|columns    how threads copy mat1 and mat2; vectors: 16 bytes across
//                                          k, which a block's rows, or columns, are multiples of
//   -DTILE_M, -DTILE_N outputs of a thread block, shared by WARPS_M x WARPS_N warps; -DTHREAD_M
//   rows of a lane; -DTILE_K, -DSTAGES; -DRESIDENT thread blocks that a multiprocessor is to hold
#include "common/cp_async_pipeline.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/sampled_tile.cuh"
#include "common/tile_copies.cuh"
#include "common/warp_fma.cuh"

using namespace sparsegpu;

constexpr int THREADS = 32 * WARPS_M * WARPS_N;
typedef SampledTile<TILE_M, TILE_N, BN> Tile;
typedef WarpFmaOutputs<TILE_M, TILE_N, TILE_K, WARPS_M, WARPS_N, THREAD_M> Outputs;
typedef TileCopies<T, THREADS, CopyOrder::MAT1, TILE_K, TILE_M, Outputs::LEFT_PITCH> LeftCopies;
typedef TileCopies<T, THREADS, CopyOrder::MAT2, TILE_K, TILE_N, Outputs::RIGHT_PITCH> RightCopies;
constexpr int LEFT_BYTES = TILE_K * Outputs::LEFT_PITCH;
constexpr int STAGE_BYTES = LEFT_BYTES + TILE_K * Outputs::RIGHT_PITCH;
constexpr int STAGED_ROWS = Outputs::AT_ONCE * Outputs::LANES_M;
constexpr int STAGING_PITCH = Outputs::WARP_N + 4;
static_assert(Outputs::LEFT_BY_TERM, "left is copied as left[k][m]");
static_assert(WARPS_M * WARPS_N * STAGED_ROWS * STAGING_PITCH * 4 <= STAGES * STAGE_BYTES,
              "the staged outputs fit where the stages were");

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    bsr_sampled_addmm_f32(const __grid_constant__ View out, const __grid_constant__ View indptr,
                          const __grid_constant__ View indices, const __grid_constant__ View mat1,
                          const __grid_constant__ View mat2, const __grid_constant__ Batch batch,
                          const __grid_constant__ SampledProblem problem,
                          const __grid_constant__ KernelEpilogueArgs<T> epilogue) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ const T* column_at[TILE_N];  // the first term of each column
  const Tile tile(blockIdx.x, indptr, batch, problem, INDEX());
  if (tile.blocks == 0) return;

  const long long first_term = tile.first_term(problem), terms = tile.terms(problem);
  const long long matrix = tile.matrix(problem);
  // A thread's first copies of the next slice are at `left`, and at `right` from the beginning of a
  // column of mat2 on.
  const long long row = tile.block_row * BM + tile.first_row + LeftCopies::column();
  const T* left = batch_ptr<const T>(mat1, batch, matrix) + row * mat1.row +
                  (first_term + LeftCopies::row()) * mat1.col;
  const T* columns = batch_ptr<const T>(mat2, batch, matrix);
  const INDEX* column_of =
      batch_ptr<const INDEX>(indices, batch, matrix) + tile.first_block * indices.row;
  for (int n = threadIdx.x; n < TILE_N; n += THREADS) {
    column_at[n] = nullptr;
    if (n >= tile.columns) continue;
    const long long block = column_of[tile.block_of(n) * indices.row];
    column_at[n] = columns + (block * BN + tile.column_in_block(n)) * mat2.col;
  }
  __syncthreads();  // the columns are known
  const int rows_here = tile.rows - LeftCopies::column();
  const int columns_here = tile.columns - RightCopies::column();
  long long right = (first_term + RightCopies::row()) * mat2.row;

  Outputs outputs;
  CpAsyncPipeline<STAGES, STAGE_BYTES> pipeline;
  auto load = [&](long long to_load) {
    if (to_load > 0) {
      const int here = int(min(to_load, (long long)TILE_K));
      // Read before any copy: the compiler puts three more loads between a load and a copy.
      const T* column[RightCopies::COLUMNS];
#pragma unroll
      for (int i = 0; i < RightCopies::COLUMNS; ++i)
        column[i] = column_at[RightCopies::column() + i * RightCopies::COLUMN_STEP] + right;
      LeftCopies::run(
          dynamic + pipeline.stage,
          [&](int k, int m) { return left + k * mat1.col + m * mat1.row; },
          [&](int, int m) { return BM % TILE_M == 0 || m < rows_here; },
          [&](int k, int) { return LeftCopies::row() + k < here; });
      RightCopies::run(
          dynamic + pipeline.stage + LEFT_BYTES,
          [&](int k, int n) { return column[n / RightCopies::COLUMN_STEP] + k * mat2.row; },
          [&](int, int n) { return n < columns_here; },
          [&](int k, int) { return RightCopies::row() + k < here; });
      left += TILE_K * mat1.col;
      right += TILE_K * mat2.row;
    }
    pipeline.advance();
  };
#pragma unroll 1
  for (int step = 0; step < STAGES - 1; ++step) load(terms - step * TILE_K);
#pragma unroll 1
  for (long long to_multiply = terms; to_multiply > 0; to_multiply -= TILE_K) {
    pipeline.wait();
    const unsigned char* slice = dynamic + pipeline.next;
    outputs.multiply(slice, slice + LEFT_BYTES, TILE_K,
                     [&] { load(to_multiply - (STAGES - 1) * TILE_K); });
  }
  pipeline.drain();

  const SampledOutputs<T, KernelEpilogue<T, OUT>, Tile> results(tile, out, batch, problem,
                                                                epilogue);
  T* staged = reinterpret_cast<T*>(dynamic) + threadIdx.x / 32 * STAGED_ROWS * STAGING_PITCH;
#pragma unroll
  for (int i = 0; i < THREAD_M; i += Outputs::AT_ONCE) {
    outputs.stage(i, staged, STAGING_PITCH);
    __syncwarp();
    results.template store<Outputs::WARP_N, STAGED_ROWS>(
        staged, STAGING_PITCH, outputs.row + i * Outputs::LANES_M, outputs.col);
    __syncwarp();
  }
}
