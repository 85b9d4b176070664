// 2:4 @ dense on Hopper's sparse tensor cores (9.0a) through wgmma: bfloat16, float16, int8, e4m3,
// and float32 (1:2) as TF32.
//
// A tile of the output is 128 rows x TILE_N columns. A stage of shared memory holds what 128 bytes
// of a dense column meet:
//
//       left      128 packed rows, 64 bytes of each
//       right     128 bytes of k of TILE_N columns of `dense`
//       meta      which k the packed values are of: the metadata of 128 rows and two pairs of
//                 columns, in CUTLASS's order (common/semi_structured.cuh)
//
// A producer thread starts TMA copies, STAGES stages ahead; two warpgroups multiply 64 rows each.
// Thread blocks are persistent and take tiles in bands of RASTER_BAND rows of tiles, so that tiles
// that run at the same time share both operands in L2.
//
// With CLUSTER = 2, the two thread blocks of a cluster take two tiles, one below the other. Each
// copies half of `right` into the shared memory of both by multicast, so that L2 is read little
// more than half as much. A stage is filled again when both thread blocks have read it.
//
//   -DT dtype of the operands; -DOUT, -DEPILOGUE, -DACT as in common/epilogue.cuh
//   -DDENSE=rows|columns  which of its strides is 1; rows only for 16-bit types (wgmma)
//   -DSTORE=rows|columns|unaligned|elementwise  how `out` is stored (common/epilogue_store.cuh)
//   -DTILE_N=64|128|256, -DSTAGES
//   -DCLUSTER=1|2         2: not with TILE_N=64
//   -DSTORE_BUFFERS=1|2   of each warp, for the epilogue store; 1 where write_tile allows it
#include "common/ceil_div.cuh"
#include "common/dense_tile_tma.cuh"
#include "common/epilogue_store.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/sparse_wgmma_loop.cuh"
#include "common/tile_scheduler.cuh"
#include "common/tma_pipeline.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"

using namespace sparsegpu;

constexpr Store HOW = Store::STORE;
typedef Acc<T>::type Sum;
typedef TmaPipeline<STAGES> Pipeline;

constexpr int SIZE = sizeof(T);
constexpr int TILE_M = 128;
constexpr int STAGE_K = 128 / SIZE;
constexpr int PRODUCTS = 2;  // of a stage: wgmma takes 64 bytes of k
typedef StageMeta<T, TILE_M> Meta;
constexpr int LEFT_BYTES = TILE_M * 64;
constexpr int RIGHT_BYTES = TILE_N * 128;
constexpr int STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES + PRODUCTS * META_PAIR_BYTES<T, TILE_M>;
static_assert(STAGE_BYTES % 1024 == 0, "every stage begins where a swizzle's pattern does");

constexpr int RASTER_BAND = 32;            // rows of tiles
constexpr int RANKS = (1 << CLUSTER) - 1;  // all thread blocks of a cluster
constexpr int SHARE = TILE_N / CLUSTER;    // columns of `right` that a thread block copies
static_assert(SHARE % 64 == 0, "a box of rows of `dense` has 64 columns");
typedef DenseTileTma<T, Layout::DENSE, STAGE_K, SHARE> Right;
constexpr int CONSUMERS = 8;  // warps
constexpr int THREADS = 32 * CONSUMERS + 128;

struct SemiStructuredProblem {
  long long m, n, batches;
  int stages;  // of k
  int dense_batched;
};

__device__ __forceinline__ unsigned rank_in_cluster() {
  return blockIdx.x % CLUSTER;
}

// One tile of the output, counted in tiles. A cluster takes CLUSTER tiles, one below the other, of
// which each thread block takes one (the last may lie outside). Numbers of tiles fit 32 bits.
struct OutputTile {
  unsigned row, column, batch;

  __device__ __forceinline__ OutputTile(unsigned tile, const SemiStructuredProblem& problem) {
    const unsigned down = tiles_down(problem);
    const unsigned across = unsigned(ceil_div(problem.n, TILE_N));
    batch = tile / (down * across);
    const BandRaster<unsigned> raster(tile % (down * across), down, across, RASTER_BAND / CLUSTER);
    row = raster.row * CLUSTER + rank_in_cluster();
    column = raster.column;
  }
  static __device__ __forceinline__ unsigned tiles_down(const SemiStructuredProblem& problem) {
    return unsigned(ceil_div(problem.m, CLUSTER * TILE_M));
  }
  // Of clusters' tiles.
  static __device__ __forceinline__ unsigned count(const SemiStructuredProblem& problem) {
    return unsigned(tiles_down(problem) * ceil_div(problem.n, TILE_N) * problem.batches);
  }
};

__device__ __forceinline__ void produce(unsigned stages, Pipeline pipeline, const TensorMap& packed,
                                        const TensorMap& meta, const TensorMap& dense,
                                        const TensorMap& dense_edge,
                                        const SemiStructuredProblem& problem) {
  const unsigned tiles = OutputTile::count(problem);
  for (unsigned t = blockIdx.x / CLUSTER; t < tiles; t += gridDim.x / CLUSTER) {
    const OutputTile tile(t, problem);
    const int share = rank_in_cluster() * SHARE;
    const long long row = (long long)tile.row * TILE_M;
    const Right columns((long long)tile.column * TILE_N + share, problem.n,
                        problem.dense_batched ? int(tile.batch) : 0);
    for (int s = 0; s < problem.stages; ++s) {
      mbarrier_wait(pipeline.empty_barrier(), pipeline.parity ^ 1);
      const unsigned left = stages + pipeline.stage * STAGE_BYTES, right = left + LEFT_BYTES;
      mbarrier_arrive_expect_tx(pipeline.full_barrier(), STAGE_BYTES);
      tma_load(left, packed, pipeline.full_barrier(), s * (STAGE_K / 2), int(row));
      tma_load(right + RIGHT_BYTES, meta, pipeline.full_barrier(), int(2 * row), s * PRODUCTS);
      auto load_for_all = [&](unsigned to, const TensorMap& map, auto... coordinates) {
        if constexpr (CLUSTER == 1)
          tma_load(to, map, pipeline.full_barrier(), coordinates...);
        else
          tma_load_multicast(to, map, pipeline.full_barrier(), RANKS, coordinates...);
      };
      columns.load(right + share * 128, dense, dense_edge, s * STAGE_K, load_for_all);
      pipeline.advance();
    }
  }
  // Other thread blocks of the cluster arrive at barriers in this one's shared memory: exit after
  // their last arrival.
  if constexpr (CLUSTER > 1) {
    for (int s = 0; s < STAGES; ++s, pipeline.advance())
      mbarrier_wait(pipeline.empty_barrier(), pipeline.parity ^ 1);
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    semi_structured_addmm_sm90(
        const __grid_constant__ TensorMap packed, const __grid_constant__ TensorMap meta,
        const __grid_constant__ TensorMap dense, const __grid_constant__ TensorMap dense_edge,
        const __grid_constant__ TensorMap out_map, const __grid_constant__ View out,
        const __grid_constant__ Batch batch, const __grid_constant__ SemiStructuredProblem problem,
        const __grid_constant__ KernelEpilogueArgs<Sum> epilogue) {
  extern __shared__ __align__(1024) unsigned char memory[];  // a stage begins it
  unsigned char* buffers = memory + STAGES * STAGE_BYTES;
  auto& barriers = reinterpret_cast<unsigned long long (&)[2][STAGES]>(
      buffers[CONSUMERS * STORE_BUFFERS * BUFFER_BYTES]);
  const unsigned stages = shared_address(memory);
  Pipeline pipeline(barriers);
  if (threadIdx.x == 0) {
    pipeline.init(1, CLUSTER * CONSUMERS);
    mbarrier_init_fence();
  }
  if (CLUSTER == 1) {
    __syncthreads();
  } else {
    cluster_arrive();
    cluster_wait();
  }

  // Broadcast: makes `warp` warp-uniform, so that operands stay in uniform registers.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (warp >= CONSUMERS) {
    setmaxnreg_dec<40>();
    if (warp == CONSUMERS && lane == 0)
      produce(stages, pipeline, packed, meta, dense, dense_edge, problem);
    return;
  }

  setmaxnreg_inc<232>();
  buffers += warp * STORE_BUFFERS * BUFFER_BYTES;
  const unsigned tiles = OutputTile::count(problem);
  for (unsigned t = blockIdx.x / CLUSTER; t < tiles; t += gridDim.x / CLUSTER) {
    const OutputTile tile(t, problem);
    Sum sum[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] = 0;

    auto is_present = [] { return true; };
    auto read = [&](Meta& meta) {
      meta.read(memory + pipeline.stage * STAGE_BYTES + LEFT_BYTES + RIGHT_BYTES);
    };
    auto start = [&](const Meta& meta) {
      const unsigned left = stages + pipeline.stage * STAGE_BYTES;
      start_products<64, Right>(sum, left, left + LEFT_BYTES, meta, warp / 4);
    };
    auto release = [&](unsigned barrier) {
      __syncwarp();  // one lane arrives for all lanes: they have read their metadata
      if constexpr (CLUSTER == 1) {
        if (barrier && lane == 0) mbarrier_arrive(barrier);
      } else {
        if (barrier && lane < CLUSTER) mbarrier_arrive_cluster(cluster_address(barrier, lane));
      }
    };
    multiply_stages<Meta>(problem.stages, pipeline, is_present, read, start, release);

    const long long top = (long long)tile.row * TILE_M + 16 * warp;
    if (top < problem.m)
      finish_tile<HOW, KernelEpilogue<Sum, OUT>, STORE_BUFFERS>(
          epilogue, sum, buffers, out, batch, out_map, tile.batch, top,
          (long long)tile.column * TILE_N, problem.n);
  }
  if (BY_TMA<HOW> && lane == 0) tma_store_wait_all();
}
