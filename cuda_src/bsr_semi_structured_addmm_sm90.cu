// BSR @ dense of blocks that are 2:4 (float32: 1:2), on Hopper's sparse tensor cores (9.0a).
//
// bsr_semi_structured_addmm_simt.cu, to be read first, says what is computed. The row
// groups, tiles and schedule are those of bsr_addmm_sm90.cu, the products those of
// semi_structured_addmm_sm90.cu. An entry of a group is multiplied in slices of 128 bytes of k:
//
//       stage             a slice's rows of TILE_N columns of `dense`
//       slot              what SLICES_PER_COPY slices are multiplied by:
//         left[row]       the packed blocks of the group's rows, 64 bytes of each row a slice
//         meta[row]       which k the packed values are of: two pairs of columns a slice of a
//                         block's metadata, in CUTLASS's order (common/semi_structured.cuh)
//
// TMA takes as long for lines of 128 bytes as for 64 bytes: two slices of a block are copied at
// once where it has an even number of them.
//
// A producer warp starts TMA copies, STAGES stages ahead; only blocks that exist are copied. Two
// warpgroups own 64 rows x TILE_N of the output each, and multiply the entries in which they have a
// block.
//
//   -DT, -DOUT, -DEPILOGUE, -DACT   as in common/epilogue.cuh; -DINDEX of the schedule's blocks
//   -DBM, -DBK            size of a block: multiples of 64 rows and of 128 bytes of k
//   -DDENSE=rows|columns  which of its strides is 1; rows only for 16-bit types (wgmma)
//   -DSTORE=rows|columns|unaligned|elementwise  how `out` is stored (common/epilogue_store.cuh)
//   -DTILE_N=64|128|256, -DSTAGES
//   -DSPLIT_K=0|1         1: some groups are split along k
//   -DRASTER_BAND=0|8|16|32  groups that take all columns of tiles before the next ones do; 0: all
//   -DSLICES_PER_COPY=1|2 slices of a block that one copy loads
#include "common/dense_tile_tma.cuh"
#include "common/epilogue_store.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/sparse_wgmma_loop.cuh"
#include "common/split_k.cuh"
#include "common/tile_scheduler.cuh"
#include "common/tma_pipeline.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"

using namespace sparsegpu;

constexpr Store HOW = Store::STORE;
typedef Acc<T>::type Sum;
typedef RowGroupTile<BM, TILE_N, RASTER_BAND> Tile;
constexpr int ROWS = Tile::Shape::ROWS, SLICE_M = Tile::Shape::SLICE_M;
constexpr int TILE_M = Tile::Shape::TILE_M;

constexpr int SIZE = sizeof(T);
constexpr int STAGE_K = 128 / SIZE;
constexpr int SLICES_K = BK / STAGE_K;
constexpr int PRODUCTS = 2;            // of a stage: wgmma takes 64 bytes of k
constexpr int PAIRS = BK * SIZE / 64;  // pairs of columns of a block's metadata
static_assert(BM % 64 == 0 && BK % STAGE_K == 0, "a warpgroup's rows are of one block");
static_assert(SLICES_K % SLICES_PER_COPY == 0, "slices of one copy are of one block");

constexpr int LEFT_WIDTH = SLICES_PER_COPY * 64;  // packed bytes of a row
constexpr int BLOCK_BYTES = SLICE_M * LEFT_WIDTH;
constexpr int META_BYTES = SLICES_PER_COPY * PRODUCTS * META_PAIR_BYTES<T, SLICE_M>;
typedef StageMeta<T, SLICE_M, META_BYTES> Meta;
constexpr int LEFT_BYTES = ROWS * BLOCK_BYTES;
constexpr int SLOT_BYTES = LEFT_BYTES + ROWS * META_BYTES;
typedef DenseTileTma<T, Layout::DENSE, STAGE_K, TILE_N> Right;
constexpr int STAGE_BYTES = Right::BYTES;
// As many slots as make sure that, when a stage may be filled again, the next slot has been read.
constexpr int SLOTS = SLICES_PER_COPY == 1 ? STAGES : STAGES / 2 + 1;
static_assert(SLOT_BYTES % 1024 == 0, "every slot begins where a swizzle's pattern does");

constexpr int CONSUMERS = 8;  // warps
constexpr int THREADS = 32 * CONSUMERS + 128;
constexpr bool ALWAYS = ROWS == 1;  // no entry of a group lacks its block

// The stages of the pipeline, and the slots.
struct SlotPipeline : TmaPipeline<STAGES> {
  int slot = 0, slice = 0;  // of the slot

  using TmaPipeline<STAGES>::TmaPipeline;
  __device__ __forceinline__ unsigned right(unsigned memory) const {
    return memory + stage * STAGE_BYTES;
  }
  __device__ __forceinline__ unsigned left(unsigned memory) const {
    return memory + STAGES * STAGE_BYTES + slot * SLOT_BYTES;
  }
  __device__ __forceinline__ void advance() {
    TmaPipeline<STAGES>::advance();
    if (++slice < SLICES_PER_COPY) return;
    slice = 0;
    if (++slot == SLOTS) slot = 0;
  }
};

// Fill every stage; each of the lanes 0 .. ROWS - 1 copies one block.
template <typename Present>
__device__ __forceinline__ void produce(unsigned memory, SlotPipeline pipeline, Present present,
                                        const TensorMap& packed, const TensorMap& meta,
                                        const TensorMap& dense, const TensorMap& dense_edge,
                                        const RowGroups<INDEX>& schedule,
                                        const RowGroupProblem& problem) {
  const int lane = threadIdx.x % 32;
  const unsigned tiles = Tile::count(problem);
  for (unsigned round = 0, t; (t = zigzag_tile(round)) < tiles; ++round) {
    const Tile tile(t, schedule, problem);
    const Right columns((long long)tile.column_tile * TILE_N, problem.n,
                        problem.dense_batched ? int(tile.batch) : 0);
    SchedulePrefetch<INDEX, ROWS, SLICES_K> prefetch(schedule, tile.group);
#pragma unroll 2
    for (int step = 0; step < prefetch.count(); ++step) {
      prefetch.advance_to(step);
      const long long my_block = prefetch.my_block();
      const int k = prefetch.block_column() * BK + step % SLICES_K * STAGE_K;
      const bool mine = lane < ROWS && my_block >= 0;
      const unsigned bits = __ballot_sync(~0u, mine);

      mbarrier_wait(pipeline.empty_barrier(), pipeline.parity ^ 1);
      const unsigned left = pipeline.left(memory), right = pipeline.right(memory);
      const bool first = pipeline.slice == 0;  // of the slot, which is copied as a whole
      if (lane == 0) {
        if (!ALWAYS) present[pipeline.stage] = bits;
        mbarrier_arrive_expect_tx(
            pipeline.full_barrier(),
            STAGE_BYTES + (first ? __popc(bits) * (BLOCK_BYTES + META_BYTES) : 0));
        columns.load(right, dense, dense_edge, k,
                     [&](unsigned to, const TensorMap& map, auto... coordinates) {
                       tma_load(to, map, pipeline.full_barrier(), coordinates...);
                     });
      }
      __syncwarp();  // expect the bytes before they arrive
      if (mine && first) {
        const int slice = step % SLICES_K, top = tile.slice * TILE_M;
        tma_load(left + lane * BLOCK_BYTES, packed, pipeline.full_barrier(), slice * (STAGE_K / 2),
                 int(my_block * BM + top));
        tma_load(left + LEFT_BYTES + lane * META_BYTES, meta, pipeline.full_barrier(), 2 * top,
                 int(my_block * PAIRS + slice * PRODUCTS));
      }
      pipeline.advance();
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) bsr_semi_structured_addmm_sm90(
    const __grid_constant__ TensorMap packed, const __grid_constant__ TensorMap meta,
    const __grid_constant__ TensorMap dense, const __grid_constant__ TensorMap dense_edge,
    const __grid_constant__ TensorMap out_map, const __grid_constant__ View out,
    const __grid_constant__ Batch batch, const __grid_constant__ RowGroups<INDEX> schedule,
    const __grid_constant__ RowGroupProblem problem, Sum* partials,
    const __grid_constant__ KernelEpilogueArgs<Sum> epilogue) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long barriers[2][STAGES];
  __shared__ unsigned present[STAGES];
  unsigned char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const unsigned shared = shared_address(memory);
  SlotPipeline pipeline(barriers);
  if (threadIdx.x == 0) {
    pipeline.init(1, CONSUMERS);
    mbarrier_init_fence();
  }
  __syncthreads();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp >= CONSUMERS) {
    setmaxnreg_dec<40>();
    if (warp == CONSUMERS)
      produce(shared, pipeline, present, packed, meta, dense, dense_edge, schedule, problem);
    return;
  }

  setmaxnreg_inc<232>();
  unsigned char* buffers =
      memory + STAGES * STAGE_BYTES + SLOTS * SLOT_BYTES + warp * 2 * BUFFER_BYTES;
  const unsigned tiles = Tile::count(problem);
  for (unsigned round = 0, t; (t = zigzag_tile(round)) < tiles; ++round) {
    const Tile tile(t, schedule, problem);
    Sum sum[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] = 0;

    // Whether this warpgroup has a block in the stage. Lane 0 alone reads `present`, because lane 0
    // alone releases the stage for the warp.
    auto is_present = [&] {
      if (ALWAYS) return true;
      const unsigned rows = lane == 0 ? present[pipeline.stage] : 0;
      return bool(__shfl_sync(~0u, rows, 0) >> warp / 4 & 1);
    };
    auto read = [&](Meta& meta) {
      meta.read(memory + (pipeline.left(shared) - shared) + LEFT_BYTES, pipeline.slice);
    };
    auto start = [&](const Meta& meta) {
      start_products<LEFT_WIDTH, Right>(sum, pipeline.left(shared) + pipeline.slice * 64,
                                        pipeline.right(shared), meta, threadIdx.x / 128);
    };
    auto release = [&](unsigned barrier) {
      __syncwarp();  // one lane arrives for all lanes: they have read their metadata
      if (barrier && lane == 0) mbarrier_arrive(barrier);
    };
    const int stages = schedule.counts[tile.group] * SLICES_K;
    multiply_stages<Meta>(stages, pipeline, is_present, read, start, release);
    store_tile<HOW, SPLIT_K, KernelEpilogue<Sum, OUT>>(
        tile, warp, sum, buffers, out, batch, out_map, schedule, problem, partials, epilogue);
  }
  if (BY_TMA<HOW> && lane == 0) tma_store_wait_all();
}
