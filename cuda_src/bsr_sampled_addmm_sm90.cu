// Dense @ dense at the stored blocks on Hopper's tensor cores (9.0a), through wgmma: bfloat16,
// float16, int8, and float32 as TF32.
//
// bsr_sampled_addmm_simt.cu says what is computed, bsr_sampled_addmm_sm90/strip.cuh what a tile is:
// TILE_M rows of mat1, once for TILE_N columns of mat2 that are gathered from the columns of blocks
// of one block row. Slices of 128 bytes of k pass through STAGES stages:
//
//   left     TILE_M lines of mat1, those of the block row in one copy
//   right    along: TILE_N lines of mat2, those of a unit in one copy; across: panels of the
//            columns of a unit, a line for each term
//
// Thread blocks are persistent and have shares of all blocks. A producer warp finds the tiles
// of its share, says which one comes, and copies, as far ahead as there are stages; so memory is
// read while two consumer warpgroups store a tile. These multiply 64 rows each, side by side where
// TILE_M is 64. What a tile has beyond its rows and columns is not copied, may be anything, and is
// not stored. Deterministic: nothing is added across thread blocks.
//
//   -DT, -DINDEX, -DOUT, -DEPILOGUE   as in bsr_sampled_addmm_simt.cu
//   -DBM, -DBN                        size of a block
//   -DUNIT_N                          columns of a block that are copied at once: a divisor of BN,
//                                     a multiple of 8; across 16, 32 or 64
//   -DEVEN=0|1                       shares (strip.cuh)
//   -DMAT2=along|across               how mat2 lies; mat1 lies along
//   -DTILE_M=64|128, -DTILE_N, -DSTAGES
//
// Of float32, wgmma truncates what TF32 has no bits for (dense_lines.cu rounds, where it copies).
#include "bsr_sampled_addmm_sm90/fragments.cuh"
#include "bsr_sampled_addmm_sm90/strip.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/tma_pipeline.cuh"
#include "common/warp_arrive.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/wgmma.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
constexpr int SIZE = sizeof(T), LINE_BYTES = 128, SLICE_K = LINE_BYTES / SIZE;
constexpr bool ACROSS = Lines::MAT2 == Lines::across;
constexpr int UNIT_BYTES = UNIT_N * LINE_BYTES;
constexpr int RIGHT_LINE = ACROSS ? UNIT_N * SIZE : LINE_BYTES;
static_assert(!ACROSS || SIZE == 2, "wgmma reads other types along k only");

constexpr int DOWN = TILE_M / 64, CONSUMERS = 2;    // warpgroups below each other, and in all
constexpr int WIDTH = TILE_N / (CONSUMERS / DOWN);  // columns of a warpgroup
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int LEFT_BYTES = TILE_M * LINE_BYTES, STAGE_BYTES = LEFT_BYTES + TILE_N * LINE_BYTES;
constexpr int BOX_M = BM < TILE_M ? BM : TILE_M;
static_assert(UNIT_N % 8 == 0, "copies begin where a swizzle's pattern does");

typedef SampledStrip<TILE_M, TILE_N, BM, BN, UNIT_N> Tile;
typedef TmaPipeline<STAGES> Pipeline;

// The matrices as tensor maps (matrix, line, position in the line), and which matrix of these a
// matrix of the batch reads.
struct SampledMaps {
  TensorMap mat1, mat2;
};
struct SampledMatrices {
  View mat1, mat2;
};

// Slices of a tile: one at least, which says that there is a tile. What the last split has beyond
// K arrives as zeros.
__device__ __forceinline__ int slices_of(const SampledProblem& problem) {
  return int(max(ceil_div(problem.k, SLICE_K), 1ll));
}

// Tiles that are copied, multiplied or stored: one in each stage, and one more, as a stage is free
// before the tile is stored.
constexpr int TILES = STAGES + 1;
__device__ __forceinline__ int next_tile(int number) {
  return number + 1 < TILES ? number + 1 : 0;
}

__device__ __forceinline__ void produce(unsigned stages, Tile* tiles, Pipeline pipeline,
                                        const SampledMaps& maps, const SampledMatrices& matrices,
                                        const View& indptr, const View& indices, const Batch& batch,
                                        const SampledProblem& problem) {
  constexpr int EACH = ceil_div(Tile::MOST, 32);  // units of a lane
  const int lane = threadIdx.x % 32, slices = slices_of(problem);
  const bool reads = problem.k > 0;
  SampledShare share = {0, 0, -1};
  int number = 0;
  for (long long next = blockIdx.x;; number = next_tile(number)) {
    while (share.unit >= share.end && next < (EVEN ? gridDim.x : problem.shares)) {
      share = EVEN ? Tile::even_share(next, problem)
                   : Tile::chunk(next, indptr, batch, problem, INDEX());
      next += gridDim.x;
    }
    if (share.unit >= share.end) break;
    const Tile tile(share.unit, share.end, share.row, indptr, batch, problem, INDEX());
    share.unit += tile.units;
    share.row = share.unit % (problem.blocks * Tile::UNITS) ? tile.block_row : -1;
    const long long matrix = tile.matrix(problem);
    const int z1 = int(batch_offset(matrices.mat1, batch, matrix));
    const int z2 = int(batch_offset(matrices.mat2, batch, matrix));
    const int row = int(tile.block_row * BM) + tile.first_row;
    const int first_term = int(tile.first_term(problem));
    const INDEX* column_of =
        batch_ptr<const INDEX>(indices, batch, matrix) + tile.first_block * indices.row;
    int column[EACH];  // where the lane's units begin: numbers lane + 32 i
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int number = lane + 32 * i, first = number * UNIT_N;
      column[i] = 0;
      if (number < tile.units)
        column[i] =
            int(column_of[tile.block_of(first) * indices.row]) * BN + tile.column_in_block(first);
    }
    const int bytes = reads ? BOX_M * LINE_BYTES + tile.units * UNIT_BYTES : 0;
    for (int slice = 0; slice < slices; ++slice) {
      mbarrier_wait(pipeline.empty_barrier(), pipeline.parity ^ 1);
      const unsigned full = pipeline.full_barrier();
      const int term = first_term + slice * SLICE_K;
      const unsigned left = stages + pipeline.stage * STAGE_BYTES, right = left + LEFT_BYTES;
      if (lane == 0) {
        if (slice == 0) tiles[number] = tile;
        mbarrier_arrive_expect_tx(full, bytes);
        if (reads) tma_load(left, maps.mat1, full, term, row, z1);
      }
      __syncwarp();  // expect the bytes before they arrive
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        const int number = lane + 32 * i;
        if (!reads || number >= tile.units) continue;
        tma_load(right + number * UNIT_BYTES, maps.mat2, full, ACROSS ? column[i] : term,
                 ACROSS ? term : column[i], z2);
      }
      pipeline.advance();
    }
  }
  mbarrier_wait(pipeline.empty_barrier(), pipeline.parity ^ 1);
  if (lane == 0) {
    tiles[number].units = 0;  // there are no more
    mbarrier_arrive(pipeline.full_barrier());
  }
}

// Start the products of a stage.
__device__ __forceinline__ void multiply(A (&sum)[WIDTH / 2], unsigned left, unsigned right) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < LINE_BYTES; k += 32)
    wgmma<T, false, ACROSS>(
        sum, smem_descriptor<LINE_BYTES>(left + k, 8 * LINE_BYTES, 16),
        smem_descriptor<RIGHT_LINE>(right + (ACROSS ? k / SIZE * RIGHT_LINE : k), 8 * RIGHT_LINE,
                                    ACROSS ? UNIT_BYTES : 16));
  wgmma_commit();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_sampled_addmm_sm90(const __grid_constant__ SampledMaps maps,
                           const __grid_constant__ SampledMatrices matrices,
                           const __grid_constant__ View out, const __grid_constant__ View indptr,
                           const __grid_constant__ View indices,
                           const __grid_constant__ Batch batch,
                           const __grid_constant__ SampledProblem problem,
                           const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long barriers[2][STAGES];
  __shared__ Tile tiles[TILES];
  unsigned char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const unsigned stages = shared_address(memory);
  Pipeline pipeline(barriers);
  if (threadIdx.x == THREADS - 128 && problem.k > 0) {
    prefetch_tensor_map(maps.mat1);
    prefetch_tensor_map(maps.mat2);
  }
  if (threadIdx.x == 0) {
    pipeline.init(1, 4 * CONSUMERS * WARP_ARRIVALS);
    mbarrier_init_fence();
  }
  __syncthreads();

  // Broadcast: makes `warp` warp-uniform.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (warp >= 4 * CONSUMERS) {
    setmaxnreg_dec<40>();
    if (warp == 4 * CONSUMERS)
      produce(stages, tiles, pipeline, maps, matrices, indptr, indices, batch, problem);
    return;
  }

  setmaxnreg_inc<232>();
  const int warpgroup = warp / 4;
  const int first_row = warpgroup % DOWN * 64, first_col = warpgroup / DOWN * WIDTH;
  const unsigned left = stages + first_row * LINE_BYTES;
  const unsigned right = stages + LEFT_BYTES + first_col * LINE_BYTES;
  const int slices = slices_of(problem);
  for (int number = 0;; number = next_tile(number)) {
    mbarrier_wait(pipeline.full_barrier(), pipeline.parity);
    const Tile& tile = tiles[number];  // read again where it is needed: registers are few
    if (tile.units == 0) break;
    const bool works =
        __shfl_sync(~0u, problem.k > 0 && first_row < tile.rows && first_col < tile.columns, 0);
    A sum[WIDTH / 2];
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) sum[i] = 0;
    if (works) {
      multiply(sum, left + pipeline.stage * STAGE_BYTES, right + pipeline.stage * STAGE_BYTES);
      for (int slice = 1; slice < slices; ++slice) {
        const unsigned last = pipeline.empty_barrier();
        pipeline.advance();
        mbarrier_wait(pipeline.full_barrier(), pipeline.parity);
        multiply(sum, left + pipeline.stage * STAGE_BYTES, right + pipeline.stage * STAGE_BYTES);
        wgmma_wait<1>();
        warp_arrive(last);
      }
      wgmma_wait<0>();
    } else {
      for (int slice = 1; slice < slices; ++slice) {
        warp_arrive(pipeline.empty_barrier());
        pipeline.advance();
        mbarrier_wait(pipeline.full_barrier(), pipeline.parity);
      }
    }
    warp_arrive(pipeline.empty_barrier());
    pipeline.advance();

    const int top = first_row + 16 * (warp % 4);
    if (first_col >= tile.columns || top >= tile.rows) continue;
    const SampledFragments<A, KernelEpilogue<A, OUT>, Tile> results(tile, out, batch, problem,
                                                                    epilogue);
    results.store<WIDTH>(sum, top, first_col);
  }
}
