// 2:4 @ dense on Hopper's sparse tensor cores (9.0a) through wgmma: bfloat16, float16, int8, e4m3,
// and float32 (1:2) as TF32.
//
// A tile of the output is 128 rows x TILE_N columns. A stage of shared memory holds what 128 bytes
// of a dense column meet:
//
//       left      128 packed rows, 64 bytes of each
//       right     128 bytes of k of TILE_N columns of `dense`
//       codes     which k the packed values are of: the elements of 128 rows and two pairs of
//                 columns of metadata, in CUTLASS's order (common/semi_structured.cuh)
//
// A producer thread keeps the copy engine busy, STAGES stages ahead; two warpgroups multiply 64
// rows each. Thread blocks stay and take tile after tile, BAND of them below each other before the
// next columns, so that what runs at the same time shares both operands in L2.
//
// With CLUSTER = 2 two thread blocks walk two tiles, one below the other, together. Each brings
// half of `right` into the shared memory of both: L2 gives, and the wires between carry, little
// more than half of the bytes. A stage is filled again when both have read it.
//
//   -DT dtype of the operands; -DOUT, -DEPILOGUE, -DACT as in common/epilogue.cuh
//   -DDENSE=rows|columns  which of its strides is 1; rows only for 16-bit types (wgmma)
//   -DSTORE=rows|columns|skewed|any  how `out` is written (common/strip.cuh)
//   -DTILE_N=64|128|256, -DSTAGES
//   -DCLUSTER=1|2         2: not with TILE_N=64
//   -DSTRIPS=1|2          of each warp, for outputs on their way; 1 where write_tile allows it
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/tma_pipeline.cuh"
#include "common/sparse_turns.cuh"
#include "common/strip.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"

using namespace sparsegpu;

constexpr Store STORING = Store::STORE;

constexpr int TILE_M = 128;
constexpr int STAGE_K = 128 / SIZE;
constexpr int PRODUCTS = 2;  // of a stage: wgmma takes 64 bytes of k
typedef Codes<TILE_M> StageCodes;
constexpr int LEFT_BYTES = TILE_M * 64;
constexpr int RIGHT_BYTES = TILE_N * 128;
constexpr int STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES + PRODUCTS * PAIR_BYTES<TILE_M>;
static_assert(STAGE_BYTES % 1024 == 0, "every stage begins where a swizzle's pattern does");

constexpr int BAND = 32;                   // tiles
constexpr int RANKS = (1 << CLUSTER) - 1;  // all thread blocks of a cluster
constexpr int SHARE = TILE_N / CLUSTER;    // columns of `right` that a thread block brings
static_assert(SHARE % 64 == 0, "a box of rows of `dense` has 64 columns");
typedef DensePanel<STAGE_K, SHARE> Panel;
constexpr int CONSUMERS = 8;  // warps
constexpr int THREADS = 32 * CONSUMERS + 128;

struct Sizes {
  long long rows, columns, batches;
  int stages;  // of k
  int dense_batched;
};

__device__ __forceinline__ unsigned rank_in_cluster() {
  return blockIdx.x % CLUSTER;
}

// One tile of the output, counted in tiles: the thread block's share of the cluster's tile, which
// has CLUSTER of them below each other (the last may lie outside). Numbers of tiles fit 32 bits.
struct Tile {
  unsigned row, panel, batch;

  __device__ __forceinline__ Tile(unsigned tile, const Sizes& sizes) {
    const unsigned down = tiles_down(sizes);
    const unsigned across = unsigned((sizes.columns + TILE_N - 1) / TILE_N);
    batch = tile / (down * across);
    tile %= down * across;
    constexpr unsigned HIGH = BAND / CLUSTER;
    const unsigned band = tile / (HIGH * across);
    tile %= HIGH * across;
    const unsigned high = min(HIGH, down - band * HIGH);
    panel = tile / high;
    row = (band * HIGH + tile % high) * CLUSTER + rank_in_cluster();
  }
  static __device__ __forceinline__ unsigned tiles_down(const Sizes& sizes) {
    return unsigned((sizes.rows + CLUSTER * TILE_M - 1) / (CLUSTER * TILE_M));
  }
  // Of clusters' tiles.
  static __device__ __forceinline__ unsigned count(const Sizes& sizes) {
    return unsigned(tiles_down(sizes) * ((sizes.columns + TILE_N - 1) / TILE_N) * sizes.batches);
  }
};

__device__ __forceinline__ void produce(unsigned stages, TmaPipeline<STAGES> ring,
                                        const TensorMap& packed, const TensorMap& codes,
                                        const TensorMap& dense, const TensorMap& dense_edge,
                                        const Sizes& sizes) {
  const unsigned tiles = Tile::count(sizes);
  for (unsigned t = blockIdx.x / CLUSTER; t < tiles; t += gridDim.x / CLUSTER) {
    const Tile tile(t, sizes);
    const int share = rank_in_cluster() * SHARE;
    const long long row = (long long)tile.row * TILE_M;
    const Panel panel((long long)tile.panel * TILE_N + share, sizes.columns,
                      sizes.dense_batched ? int(tile.batch) : 0);
    for (int s = 0; s < sizes.stages; ++s) {
      mbarrier_wait(ring.empty_barrier(), ring.parity ^ 1);
      const unsigned left = stages + ring.stage * STAGE_BYTES, right = left + LEFT_BYTES;
      mbarrier_expect(ring.full_barrier(), STAGE_BYTES);
      bulk_load(left, packed, ring.full_barrier(), s * (STAGE_K / 2), int(row));
      bulk_load(right + RIGHT_BYTES, codes, ring.full_barrier(), int(2 * row), s * PRODUCTS);
      auto load_for_all = [&](unsigned to, const TensorMap& map, auto... place) {
        if constexpr (CLUSTER == 1)
          bulk_load(to, map, ring.full_barrier(), place...);
        else
          bulk_load_multicast(to, map, ring.full_barrier(), RANKS, place...);
      };
      panel.bring(right + share * 128, dense, dense_edge, s * STAGE_K, load_for_all);
      ring.advance();
    }
  }
  // Shared memory stays until no thread block of the cluster has to arrive in it any more.
  if constexpr (CLUSTER > 1) {
    for (int s = 0; s < STAGES; ++s, ring.advance())
      mbarrier_wait(ring.empty_barrier(), ring.parity ^ 1);
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    semi_structured_addmm_sm90(
        const __grid_constant__ TensorMap packed, const __grid_constant__ TensorMap codes,
        const __grid_constant__ TensorMap dense, const __grid_constant__ TensorMap dense_edge,
        const __grid_constant__ TensorMap out_map, const __grid_constant__ View out,
        const __grid_constant__ Batch batch, const __grid_constant__ Sizes sizes,
        const __grid_constant__ KernelEpilogueArgs<Sum> epilogue) {
  extern __shared__ __align__(1024) unsigned char memory[];  // a stage begins it
  unsigned char* strips = memory + STAGES * STAGE_BYTES;
  auto& barriers =
      reinterpret_cast<unsigned long long (&)[2][STAGES]>(strips[CONSUMERS * STRIPS * STRIP_BYTES]);
  const unsigned stages = shared_address(memory);
  TmaPipeline<STAGES> ring(barriers);
  if (threadIdx.x == 0) {
    ring.init(1, CLUSTER * CONSUMERS);
    mbarrier_init_fence();
  }
  if (CLUSTER == 1) {
    __syncthreads();
  } else {
    cluster_arrive();
    cluster_wait();
  }

  // From one lane, so that the compiler keeps operands in registers of the warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (warp >= CONSUMERS) {
    give_registers<40>();
    if (warp == CONSUMERS && lane == 0)
      produce(stages, ring, packed, codes, dense, dense_edge, sizes);
    return;
  }

  take_registers<232>();
  strips += warp * STRIPS * STRIP_BYTES;
  const unsigned tiles = Tile::count(sizes);
  for (unsigned t = blockIdx.x / CLUSTER; t < tiles; t += gridDim.x / CLUSTER) {
    const Tile tile(t, sizes);
    Sum sum[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] = 0;

    auto is_here = [] { return true; };
    auto read = [&](StageCodes& codes) {
      codes.read(memory + ring.stage * STAGE_BYTES + LEFT_BYTES + RIGHT_BYTES);
    };
    auto start = [&](const StageCodes& codes) {
      const unsigned left = stages + ring.stage * STAGE_BYTES;
      start_products<64, Panel>(sum, left, left + LEFT_BYTES, codes, warp / 4);
    };
    auto give_back = [&](unsigned barrier) {
      __syncwarp();  // a lane does it for all lanes: they have read their codes
      if constexpr (CLUSTER == 1) {
        if (barrier && lane == 0) mbarrier_arrive(barrier);
      } else {
        if (barrier && lane < CLUSTER) mbarrier_arrive_at(cluster_address(barrier, lane));
      }
    };
    multiply_stages<StageCodes>(sizes.stages, ring, is_here, read, start, give_back);

    const long long top = (long long)tile.row * TILE_M + 16 * warp;
    if (top < sizes.rows)
      finish_tile<STORING, KernelEpilogue<Sum, OUT>, STRIPS>(
          epilogue, sum, strips, out, batch, out_map, tile.batch, top,
          (long long)tile.panel * TILE_N, sizes.columns);
  }
  if (BY_ENGINE<STORING> && lane == 0) bulk_wait_all();
}
