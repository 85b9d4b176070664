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
#include "common/epilogue.cuh"
#include "common/group_parts.cuh"
#include "common/ring.cuh"
#include "common/sparse_stage.cuh"
#include "common/strip.cuh"
#include "common/tile_walk.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"

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
constexpr int STAGE_BYTES = TILE_N * 128;
// When the producer may fill a stage again, the slot that it comes to has been read, too.
constexpr int SLOTS = TOGETHER == 1 ? STAGES : STAGES / 2 + 1;
static_assert(SLOT_BYTES % 1024 == 0, "every slot begins where a swizzle's pattern does");

constexpr int CONSUMERS = 8;  // warps
constexpr int THREADS = 32 * CONSUMERS + 128;
constexpr bool ALWAYS = ROWS == 1;  // no entry of a group lacks its block

// The ring of stages, and the slots with what the stages' slices of `dense` are multiplied by.
struct Rings : Ring {
  int slot = 0, slice = 0;  // of the slot

  using Ring::Ring;
  __device__ __forceinline__ unsigned right(unsigned memory) const {
    return memory + stage * STAGE_BYTES;
  }
  __device__ __forceinline__ unsigned left(unsigned memory) const {
    return memory + STAGES * STAGE_BYTES + slot * SLOT_BYTES;
  }
  __device__ __forceinline__ void advance() {
    Ring::advance();
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
                                        const Groups& schedule, const Sizes& sizes) {
  const int lane = threadIdx.x % 32;
  const unsigned tiles = tile_count(sizes);
  for (unsigned round = 0, t; (t = deal(round)) < tiles; ++round) {
    const Tile tile(t, schedule, sizes, BAND);
    const long long start = schedule.starts[tile.group];
    const int steps = schedule.counts[tile.group] * SLICES_K;
    const int dense_batch = sizes.dense_batched ? int(tile.batch) : 0;
    const long long first_col = (long long)tile.panel * TILE_N;
    const bool edge = LAYOUT == Layout::rows && sizes.columns % 64 != 0 &&
                      first_col + TILE_N > sizes.columns / 64 * 64;

    // The schedule of AHEAD stages is read at once, and the next while these are worked on.
    constexpr int AHEAD = 32 / ROWS;
    long long block = -1, next_block = -1;
    int column = 0, next_column = 0;
    auto read_ahead = [&](int at) {
      const int s = at + lane / ROWS, c = at + lane;
      next_block = s < steps ? schedule.blocks[(start + s / SLICES_K) * ROWS + lane % ROWS] : -1;
      next_column = lane < AHEAD && c < steps ? schedule.columns[start + c / SLICES_K] : 0;
    };
    read_ahead(0);
    for (int step = 0; step < steps; ++step) {
      const int ahead = step % AHEAD;
      if (ahead == 0) {
        block = next_block;
        column = next_column;
        read_ahead(step + AHEAD);
      }
      const long long my_block = __shfl_sync(~0u, block, ahead * ROWS + lane % ROWS);
      const int k = __shfl_sync(~0u, column, ahead) * BK + step % SLICES_K * STAGE_K;
      const bool mine = lane < ROWS && my_block >= 0;
      const unsigned bits = __ballot_sync(~0u, mine);

      mbarrier_wait(ring.read(), ring.parity ^ 1);
      const unsigned left = ring.left(memory), right = ring.right(memory);
      const bool first = ring.slice == 0;  // of the slot, which comes as a whole
      if (lane == 0) {
        if (!ALWAYS) present[ring.stage] = bits;
        mbarrier_expect(ring.filled(),
                        STAGE_BYTES + (first ? __popc(bits) * (BLOCK_BYTES + CODES_BYTES) : 0));
        if (LAYOUT == Layout::columns) {
          bulk_load(right, dense, ring.filled(), k, int(first_col), dense_batch);
        } else if (!edge) {
          bulk_load(right, dense, ring.filled(), 0, k, int(first_col / 64), dense_batch);
        } else {
          for (int n = 0; n < TILE_N; n += 64)
            bulk_load(right + n * 128, dense_edge, ring.filled(), int(first_col) + n, k,
                      dense_batch);
        }
      }
      __syncwarp();  // the bytes are announced before they come
      if (mine && first) {
        const int slice = step % SLICES_K, top = tile.slice * TILE_M;
        bulk_load(left + lane * BLOCK_BYTES, packed, ring.filled(), slice * (STAGE_K / 2),
                  int(my_block * BM + top));
        bulk_load(left + LEFT_BYTES + lane * CODES_BYTES, codes, ring.filled(), 2 * top,
                  int(my_block * PAIRS + slice * PRODUCTS));
      }
      ring.advance();
    }
  }
}

// Start the products of a stage.
__device__ __forceinline__ void multiply(Sum (&sum)[TILE_N / 2], unsigned right, unsigned left,
                                         int slice, const StageCodes& codes) {
  left += threadIdx.x / 128 * (64 * LEFT_WIDTH) + slice * 64;
  auto a = [&](int k) { return wgmma_operand<LEFT_WIDTH>(left + k * 32, 8 * LEFT_WIDTH, 16); };
  auto b = [&](int k) {
    return BY_N ? wgmma_operand<128>(right + k * 4096, 1024, STAGE_K * 128)
                : wgmma_operand<128>(right + k * 64, 1024, 16);
  };
  start_products(sum, codes, a, b);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) bsr_semi_structured_addmm_sm90(
    const __grid_constant__ TensorMap packed, const __grid_constant__ TensorMap codes,
    const __grid_constant__ TensorMap dense, const __grid_constant__ TensorMap dense_edge,
    const __grid_constant__ TensorMap out_map, const __grid_constant__ View out,
    const __grid_constant__ Batch batch, const __grid_constant__ Groups schedule,
    const __grid_constant__ Sizes sizes, Sum* parts,
    const __grid_constant__ Epilogue<Sum> epilogue) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long barriers[2][STAGES];
  __shared__ unsigned present[STAGES];
  unsigned char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const unsigned shared = shared_address(memory);
  Rings ring(barriers);
  if (threadIdx.x == 0) {
    ring.make(1, CONSUMERS);
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
    const int turns = schedule.counts[tile.group] * SLICES_K;
    Sum sum[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] = 0;

    // The products of two stages are under way at a time: codes take turns, and the stage before
    // this one is given back when its products have ended. Then the codes of the next stage are
    // read. Between two of the instructions that start products, the compiler allows that only
    // before a wait; else it waits for every single product of 8-bit types (C7513).
    StageCodes two[2] = {};
    unsigned before = 0;
    int turn = 0;
    auto give_back = [&](unsigned read) {
      __syncwarp();  // one lane does it for all: they have read what they need of the stage
      if (read && lane == 0) mbarrier_arrive(read);
    };
    // Whether this warpgroup has a block in the stage. Lane 0 alone reads what is present, as it
    // gives the stage back for all.
    auto is_here = [&] {
      const unsigned rows = lane == 0 ? present[ring.stage] : 0;
      return bool(__shfl_sync(~0u, rows, 0) >> warp / 4 & 1);
    };
    // Go on to the next stage in which this warpgroup has a block, and read its codes.
    auto look = [&](StageCodes& codes) {
      if (turn == turns) return;
      mbarrier_wait(ring.filled(), ring.parity);
      if constexpr (!ALWAYS) {
        while (!is_here()) {
          // The producer may need what the products under way still read before it brings more.
          wgmma_wait<0>();
          give_back(before);
          before = 0;
          give_back(ring.read());
          ring.advance();
          if (++turn == turns) return;
          mbarrier_wait(ring.filled(), ring.parity);
        }
      }
      const unsigned char* slot = memory + (ring.left(shared) - shared);
      codes.read(slot + LEFT_BYTES, ring.slice);
      wgmma_wait<1>();  // there is one at most
    };
    auto take_turn = [&](const StageCodes& mine, StageCodes& others) {
      multiply(sum, ring.right(shared), ring.left(shared), ring.slice, mine);
      wgmma_wait<1>();
      others.hold();
      give_back(before);
      before = ring.read();
      ring.advance();
      ++turn;
      look(others);
    };
    look(two[0]);
    while (turn < turns) {
      take_turn(two[0], two[1]);
      if (turn < turns) take_turn(two[1], two[0]);
    }
    wgmma_wait<0>();
    two[0].hold();
    two[1].hold();
    give_back(before);

    unsigned number = tile.group;
    if constexpr (PARTS) {
      const GroupPiece piece = schedule.pieces[tile.group];
      if (piece.part >= 0) {
        const long long at =
            part_tile<TILE_N>((long long)piece.part * SLICES_M + tile.slice, tile.batch,
                              sizes.batches, tile.panel, sizes.columns);
        write_part(part_fragments<TILE_N, CONSUMERS>(parts, at, warp), sum);
        continue;
      }
      number = piece.group;
    }
    // The warp's rows: inside a block row of the group, of the block and of the matrix?
    const long long group = number - (sizes.pattern_batched ? tile.batch * sizes.groups : 0);
    const int row = 16 * warp + tile.slice * TILE_M;
    long long top = group * (BM * ROWS) + row;
    if (ROWS > 1 && schedule.block_rows) {
      const int block_row = schedule.block_rows[number * ROWS + row / BM];
      top = block_row < 0 ? sizes.rows : block_row * (long long)BM + row % BM;
    }
    if (row < BM * ROWS && top < sizes.rows) {
      const Finish<Sum, OUT> finish(epilogue, batch, tile.batch);
      const long long first_col = (long long)tile.panel * TILE_N;
      finish.times_alpha(sum);
      finish.walk(first_col, TILE_N, sizes.columns, [&](auto walk) {
        write_tile<STORING>(walk, sum, strips, out, batch_ptr<OUT>(out, batch, tile.batch), out_map,
                            top, first_col, sizes.columns, int(tile.batch), finish);
      });
    }
  }
  if (BY_ENGINE<STORING> && lane == 0) bulk_wait_all();
}
