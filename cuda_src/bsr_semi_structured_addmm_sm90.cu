// BSR @ dense of blocks that are 2:4 (float32: 1:2), on Hopper's sparse tensor cores (9.0a).
//
// bsr_semi_structured_addmm_simt.cu, to be read first, says what is computed. This is
// bsr_addmm_sm90.cu, whose groups of block rows and tiles it has, with the products of
// semi_structured_addmm_sm90.cu. An entry of a group is walked in slices of 128 bytes of k:
//
//       stage             a slice's rows of TILE_N columns of `dense`
//       slot              what TOGETHER slices are multiplied by:
//         left[row]       the packed blocks of the group's rows, 64 bytes of each row a slice
//         codes[row]      which k the packed values are of: two pairs of columns a slice of a
//                         block's metadata, in CUTLASS's order (common/semi_structured.cuh)
//
// Lines of 128 bytes cost the copy engine what 64 bytes do: two slices of a block come together
// where it has an even number of them.
//
// A producer warp keeps the copy engine busy, STAGES stages ahead; only blocks that exist are
// brought. Two warpgroups own 64 rows x TILE_N of the output each, and multiply the entries in
// which they have a block.
//
//   -DT, -DOUT, -DEPILOGUE, -DACT   as in common/epilogue.cuh; -DINDEX of the schedule's blocks
//   -DBM, -DBK            size of a block: multiples of 64 rows and of 128 bytes of k
//   -DDENSE=rows|columns  which of its strides is 1; rows only for 16-bit types (wgmma)
//   -DSTORE=rows|columns|skewed|any  how `out` is written (common/strip.cuh)
//   -DTILE_N=64|128|256, -DSTAGES
//   -DPARTS=0|1           1: some groups are cut into parts
//   -DBAND=0|8|16|32      groups that take all panels before the next ones do; 0: all
//   -DTOGETHER=1|2        slices of blocks that are brought together
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/group_outputs.cuh"
#include "common/tma_pipeline.cuh"
#include "common/sparse_turns.cuh"
#include "common/strip.cuh"
#include "common/tile_walk.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"

using namespace sparsegpu;

constexpr Store STORING = Store::STORE;

constexpr int STAGE_K = 128 / SIZE;
constexpr int SLICES_K = BK / STAGE_K;
constexpr int PRODUCTS = 2;            // of a stage: wgmma takes 64 bytes of k
constexpr int PAIRS = BK * SIZE / 64;  // pairs of columns of a block's metadata
static_assert(BM % 64 == 0 && BK % STAGE_K == 0, "a warpgroup's rows are of one block");
static_assert(SLICES_K % TOGETHER == 0, "slices that are brought together are of one block");

constexpr int LEFT_WIDTH = TOGETHER * 64;  // packed bytes of a row
constexpr int BLOCK_BYTES = SLICE_M * LEFT_WIDTH;
constexpr int CODES_BYTES = TOGETHER * PRODUCTS * PAIR_BYTES<SLICE_M>;
typedef Codes<SLICE_M, CODES_BYTES> StageCodes;
constexpr int LEFT_BYTES = ROWS * BLOCK_BYTES;
constexpr int SLOT_BYTES = LEFT_BYTES + ROWS * CODES_BYTES;
typedef DensePanel<STAGE_K, TILE_N> Panel;
constexpr int STAGE_BYTES = Panel::BYTES;
// When the producer may fill a stage again, the slot that it comes to has been read, too.
constexpr int SLOTS = TOGETHER == 1 ? STAGES : STAGES / 2 + 1;
static_assert(SLOT_BYTES % 1024 == 0, "every slot begins where a swizzle's pattern does");

constexpr int CONSUMERS = 8;  // warps
constexpr int THREADS = 32 * CONSUMERS + 128;
constexpr bool ALWAYS = ROWS == 1;  // no entry of a group lacks its block

// The ring of stages, and the slots with what the stages' slices of `dense` are multiplied by.
struct Rings : TmaPipeline<STAGES> {
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
    if (++slice < TOGETHER) return;
    slice = 0;
    if (++slot == SLOTS) slot = 0;
  }
};

// Fill every stage; the lanes 0 .. ROWS - 1 of the warp look after one block each.
template <typename Present>
__device__ __forceinline__ void produce(unsigned memory, Rings ring, Present present,
                                        const TensorMap& packed, const TensorMap& codes,
                                        const TensorMap& dense, const TensorMap& dense_edge,
                                        const RowGroups<INDEX>& schedule, const Sizes& sizes) {
  const int lane = threadIdx.x % 32;
  const unsigned tiles = tile_count(sizes);
  for (unsigned round = 0, t; (t = deal(round)) < tiles; ++round) {
    const Tile tile(t, schedule, sizes, BAND);
    const Panel panel((long long)tile.panel * TILE_N, sizes.columns,
                      sizes.dense_batched ? int(tile.batch) : 0);
    StepsAhead<SLICES_K> ahead(schedule, tile.group);
#pragma unroll 2
    for (int step = 0; step < ahead.count(); ++step) {
      ahead.look_at(step);
      const long long my_block = ahead.my_block();
      const int k = ahead.block_column() * BK + step % SLICES_K * STAGE_K;
      const bool mine = lane < ROWS && my_block >= 0;
      const unsigned bits = __ballot_sync(~0u, mine);

      mbarrier_wait(ring.empty_barrier(), ring.parity ^ 1);
      const unsigned left = ring.left(memory), right = ring.right(memory);
      const bool first = ring.slice == 0;  // of the slot, which comes as a whole
      if (lane == 0) {
        if (!ALWAYS) present[ring.stage] = bits;
        mbarrier_expect(ring.full_barrier(),
                        STAGE_BYTES + (first ? __popc(bits) * (BLOCK_BYTES + CODES_BYTES) : 0));
        panel.bring(right, dense, dense_edge, k, [&](unsigned to, const auto& map, auto... place) {
          bulk_load(to, map, ring.full_barrier(), place...);
        });
      }
      __syncwarp();  // the bytes are announced before they come
      if (mine && first) {
        const int slice = step % SLICES_K, top = tile.slice * TILE_M;
        bulk_load(left + lane * BLOCK_BYTES, packed, ring.full_barrier(), slice * (STAGE_K / 2),
                  int(my_block * BM + top));
        bulk_load(left + LEFT_BYTES + lane * CODES_BYTES, codes, ring.full_barrier(), 2 * top,
                  int(my_block * PAIRS + slice * PRODUCTS));
      }
      ring.advance();
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) bsr_semi_structured_addmm_sm90(
    const __grid_constant__ TensorMap packed, const __grid_constant__ TensorMap codes,
    const __grid_constant__ TensorMap dense, const __grid_constant__ TensorMap dense_edge,
    const __grid_constant__ TensorMap out_map, const __grid_constant__ View out,
    const __grid_constant__ Batch batch, const __grid_constant__ RowGroups<INDEX> schedule,
    const __grid_constant__ Sizes sizes, Sum* parts,
    const __grid_constant__ KernelEpilogueArgs<Sum> epilogue) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long barriers[2][STAGES];
  __shared__ unsigned present[STAGES];
  unsigned char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const unsigned shared = shared_address(memory);
  Rings ring(barriers);
  if (threadIdx.x == 0) {
    ring.init(1, CONSUMERS);
    mbarrier_init_fence();
  }
  __syncthreads();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp >= CONSUMERS) {
    give_registers<40>();
    if (warp == CONSUMERS)
      produce(shared, ring, present, packed, codes, dense, dense_edge, schedule, sizes);
    return;
  }

  take_registers<232>();
  unsigned char* strips =
      memory + STAGES * STAGE_BYTES + SLOTS * SLOT_BYTES + warp * 2 * STRIP_BYTES;
  const unsigned tiles = tile_count(sizes);
  for (unsigned round = 0, t; (t = deal(round)) < tiles; ++round) {
    const Tile tile(t, schedule, sizes, BAND);
    Sum sum[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] = 0;

    // Whether this warpgroup has a block in the stage. Lane 0 alone reads what is present, as it
    // gives the stage back for all.
    auto is_here = [&] {
      if (ALWAYS) return true;
      const unsigned rows = lane == 0 ? present[ring.stage] : 0;
      return bool(__shfl_sync(~0u, rows, 0) >> warp / 4 & 1);
    };
    auto read = [&](StageCodes& codes) {
      codes.read(memory + (ring.left(shared) - shared) + LEFT_BYTES, ring.slice);
    };
    auto start = [&](const StageCodes& codes) {
      start_products<LEFT_WIDTH, Panel>(sum, ring.left(shared) + ring.slice * 64,
                                        ring.right(shared), codes, threadIdx.x / 128);
    };
    auto give_back = [&](unsigned barrier) {
      __syncwarp();  // one lane does it for all: they have read what they need of the stage
      if (barrier && lane == 0) mbarrier_arrive(barrier);
    };
    const int turns = schedule.counts[tile.group] * SLICES_K;
    multiply_stages<StageCodes>(turns, ring, is_here, read, start, give_back);
    write_outputs<STORING, KernelEpilogue<Sum, OUT>>(tile, warp, sum, strips, out, batch, out_map,
                                                     schedule, sizes, parts, epilogue);
  }
  if (BY_ENGINE<STORING> && lane == 0) bulk_wait_all();
}
