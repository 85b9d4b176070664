// BSR @ dense on Hopper's tensor cores (9.0a): bfloat16, float16, int8, and float32 as TF32,
// through wgmma.
//
// bsr_addmm_simt.cu, to be read first, says what is computed. Here ROWS consecutive block rows
// form a group: 128 rows of the output where the block size divides 128. A group walks the union
// of its rows' block columns ("entries", engines/cuda/_schedule.py), so that a tile of `dense` is
// brought once for all its rows. Only blocks that exist are brought and multiplied.
//
//   a step is STEP_K rows of `dense`: an entry, or a slice of one (STEP_K divides BK);
//   a stage of shared memory holds STEPS steps, STAGE_K rows of `dense` in all, 128 bytes of k:
//
//       left[step][row of group]   the blocks' slices, BM x STEP_K each; missing ones not written
//       right[step]                STEP_K x TILE_N of `dense`
//       present[step]              one bit for each row of the group
//
// A producer warp for each step of a stage keeps the copy engine busy, STAGES stages ahead. Two
// warpgroups of consumers own 64 rows x TILE_N of the output each. Where a block covers 64 rows,
// its warpgroup multiplies it from shared memory. Smaller blocks go through registers: there a
// warp whose block is missing puts zeros, and the warpgroup passes over steps in which it has no
// block at all. In either case the next stage is looked at while the products of this one run.
//
// Thread blocks stay and take tile after tile, the group running fastest (all of them share a
// panel of `dense` in L2), groups with most entries first, and the matrices of a batched `dense`
// one after the other. Nothing is added across thread blocks but in bsr_addmm_sm90_parts.cu, where
// long groups were cut, and there in a fixed order: the result is deterministic.
//
//   -DT, -DOUT, -DEPILOGUE, -DACT   as in bsr_addmm_simt.cu; -DINDEX of the schedule's blocks
//   -DBM, -DBK            size of a block (BM: 128 of its rows at a time): multiples of 16 rows,
//                         and of 32 bytes of k
//   -DTRANSPOSED=1        blocks lie transposed, BK x BM (then BM is 16, 32 or a multiple of 64)
//   -DDENSE=rows|columns  which of its strides is 1
//   -DSTORE=rows|columns|skewed|any  how `out` is written (common/strip.cuh)
//   -DTILE_N=64|128|256, -DSTAGES
//   -DPARTS=0|1           1: some groups are cut into parts
//
// wgmma takes int8 and TF32 with k contiguous only: -DT=s8 and -DT=f32 go with TRANSPOSED=0, and
// -DT=f32 with DENSE=columns. Where -DT=s8 goes with DENSE=rows, the producers' warpgroup also
// turns what of `dense` has been brought: a step is brought in squares, STEP_K bytes wide, which
// are transposed where they lie (common/turn.cuh). Of float32 wgmma cuts off what TF32 has no bits
// for (dense_lines.cu rounds, where it makes the columns).
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/group_outputs.cuh"
#include "common/tma_pipeline.cuh"
#include "common/strip.cuh"
#include "common/tile_walk.cuh"
#include "common/turn.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

using namespace sparsegpu;

constexpr Layout LAYOUT = Layout::DENSE;
constexpr Store STORING = Store::STORE;
typedef Acc<T>::type Sum;
constexpr bool TURNED = LAYOUT == Layout::rows && sizeof(T) == 1;
constexpr bool BY_N = LAYOUT == Layout::rows && !TURNED;  // as wgmma reads `dense`
static_assert(sizeof(T) == 2 || (!BY_N && !TRANSPOSED),
              "k is contiguous in both operands of an int8 or TF32 product");

constexpr int SIZE = sizeof(T);
constexpr int STAGE_K = 128 / SIZE;
constexpr int STEP_K = BK % STAGE_K == 0         ? STAGE_K
                       : BK % (STAGE_K / 2) == 0 ? STAGE_K / 2
                                                 : STAGE_K / 4;
constexpr int STEPS = STAGE_K / STEP_K;
constexpr int SLICES_K = BK / STEP_K;
constexpr int PRODUCTS = STEP_K * SIZE / 32;  // of a step: wgmma takes 32 bytes of k

// Widths in bytes of what shared memory holds row by row, which are the tensor maps' swizzles.
constexpr int BOX_M = SLICE_M % 64 == 0 ? 64 : SLICE_M;  // m of a box of transposed blocks
constexpr int LEFT_WIDTH = SIZE * (TRANSPOSED ? BOX_M : STEP_K);
constexpr int RIGHT_WIDTH = BY_N ? 128 : SIZE * STEP_K;
constexpr int BOX_N = RIGHT_WIDTH / SIZE;  // n of a box of rows of `dense`

constexpr int BLOCK_BYTES = SLICE_M * STEP_K * SIZE;
constexpr int PANEL_BYTES = STEP_K * TILE_N * SIZE;
constexpr int LEFT_BYTES = STEPS * ROWS * BLOCK_BYTES;
constexpr int STAGE_BYTES = LEFT_BYTES + STEPS * PANEL_BYTES;
static_assert(STAGE_BYTES % 1024 == 0, "every stage begins where a swizzle's pattern does");

constexpr int CONSUMERS = 8;  // warps
constexpr int THREADS = 32 * CONSUMERS + 128;
constexpr int TURNERS = 2 / STEPS;  // warps that turn a step
static_assert(!TURNED || TURNERS > 0, "there are two warps to turn the steps of a stage");
constexpr bool FROM_SHARED = SLICE_M % 64 == 0;
constexpr bool ALWAYS = ROWS == 1 && STEPS == 1;  // no step of a stage lacks its block

// Fill step `step` of every stage; the warp's lanes 0 .. ROWS - 1 look after one block each.
template <typename Present>
__device__ __forceinline__ void produce(int step, unsigned stages, TmaPipeline<STAGES> ring,
                                        Present present, const TensorMap& values,
                                        const TensorMap& dense, const TensorMap& dense_edge,
                                        const RowGroups<INDEX>& schedule, const Sizes& sizes) {
  const int lane = threadIdx.x % 32;
  const unsigned tiles = tile_count(sizes);
  for (unsigned round = 0, t; (t = deal(round)) < tiles; ++round) {
    const Tile tile(t, schedule, sizes);
    const long long start = schedule.starts[tile.group];
    const int steps = schedule.counts[tile.group] * SLICES_K;
    const int dense_batch = sizes.dense_batched ? int(tile.batch) : 0;
    const long long first_col = (long long)tile.panel * TILE_N;
    const bool edge = LAYOUT == Layout::rows && sizes.columns % BOX_N != 0 &&
                      first_col + TILE_N > sizes.columns / BOX_N * BOX_N;

    // The schedule of AHEAD stages is read at once, and the next while these are worked on.
    constexpr int AHEAD = 32 / ROWS;
    long long block = -1, next_block = -1;
    int column = -1, next_column = -1;
    auto read_ahead = [&](int at) {
      const int s = (at / STEPS + lane / ROWS) * STEPS + step;
      next_block = s < steps ? schedule.blocks[(start + s / SLICES_K) * ROWS + lane % ROWS] : -1;
      const int c = (at / STEPS + lane) * STEPS + step;
      next_column = lane < AHEAD && c < steps ? schedule.columns[start + c / SLICES_K] : -1;
    };
    read_ahead(0);
    for (int first = 0, turn = 0; first < steps; first += STEPS, ++turn) {
      const int ahead = turn % AHEAD;
      if (ahead == 0) {
        block = next_block;
        column = next_column;
        read_ahead(first + AHEAD * STEPS);
      }
      const long long my_block = __shfl_sync(~0u, block, ahead * ROWS + lane % ROWS);
      const int my_column = __shfl_sync(~0u, column, ahead);
      const bool mine = lane < ROWS && my_block >= 0;
      const unsigned bits = __ballot_sync(~0u, mine);
      const int slice = (first + step) % SLICES_K;

      mbarrier_wait(ring.empty_barrier(), ring.parity ^ 1);
      const unsigned left = stages + ring.stage * STAGE_BYTES + step * ROWS * BLOCK_BYTES;
      const unsigned right = stages + ring.stage * STAGE_BYTES + LEFT_BYTES + step * PANEL_BYTES;
      if (lane == 0) {
        present[ring.stage][step] = bits;
        mbarrier_expect(ring.full_barrier(),
                        __popc(bits) * BLOCK_BYTES + (my_column >= 0 ? PANEL_BYTES : 0));
        if (my_column >= 0) {
          const int k = my_column * BK + slice * STEP_K;
          if (LAYOUT == Layout::columns) {
            bulk_load(right, dense, ring.full_barrier(), k, int(first_col), dense_batch);
          } else if (!edge) {
            bulk_load(right, dense, ring.full_barrier(), 0, k, int(first_col / BOX_N), dense_batch);
          } else {
            for (int n = 0; n < TILE_N; n += BOX_N)
              bulk_load(right + n * STEP_K * SIZE, dense_edge, ring.full_barrier(),
                        int(first_col) + n, k, dense_batch);
          }
        }
      }
      __syncwarp();  // the bytes are announced before they come
      if (mine) {
        const unsigned to = left + lane * BLOCK_BYTES;
        if (!TRANSPOSED) {
          bulk_load(to, values, ring.full_barrier(), slice * STEP_K,
                    int(my_block * BM + tile.slice * TILE_M));
        } else {
          for (int m = 0; m < SLICE_M; m += BOX_M)
            bulk_load(to + m * STEP_K * SIZE, values, ring.full_barrier(), tile.slice * TILE_M + m,
                      int(my_block * BK + slice * STEP_K));
        }
      }
      ring.advance();
    }
  }
}

// Transpose part `part` of step `step` of every stage.
__device__ __forceinline__ void transpose(int step, int part, unsigned stages,
                                          TmaPipeline<STAGES> ring,
                                          const RowGroups<INDEX>& schedule, const Sizes& sizes) {
  const Turner<RIGHT_WIDTH> turner;
  const unsigned tiles = tile_count(sizes);
  for (unsigned round = 0, t; (t = deal(round)) < tiles; ++round) {
    const Tile tile(t, schedule, sizes);
    const int steps = schedule.counts[tile.group] * SLICES_K;
    for (int first = 0; first < steps; first += STEPS) {
      mbarrier_wait(ring.full_barrier(), ring.parity);
      const unsigned right = stages + ring.stage * STAGE_BYTES + LEFT_BYTES + step * PANEL_BYTES;
      if (first + step < steps) {
        for (int n = part * BOX_N; n < TILE_N; n += TURNERS * BOX_N)
          turner.turn(right + n * RIGHT_WIDTH);
        bulk_fence();  // wgmma reads as the copy engine does
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.transposed_barrier());
      ring.advance();
    }
  }
}

// A stage as a warp of the consumers sees it: the steps it has to multiply, packed to the front.
struct Stage {
  int count;
  unsigned left[FROM_SHARED ? STEPS : 1];            // where the warpgroup's blocks are ...
  unsigned a[FROM_SHARED ? 1 : STEPS][PRODUCTS][4];  // ... or what the warp has of them
  unsigned right[STEPS];
};

__device__ __forceinline__ void look_at(Stage& s, const unsigned* present, unsigned stage) {
  const int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const unsigned right = stage + LEFT_BYTES;
  if constexpr (ALWAYS) {
    s.count = 1;
    s.left[0] = stage;
    s.right[0] = right;
  } else {
    // The rows of the group that meet this warpgroup's 64 rows, and the one of this warp.
    const int row = 64 * warpgroup + 16 * warp;
    const int of_warp = row / SLICE_M;
    const int first = 64 * warpgroup / SLICE_M;
    const unsigned of_warpgroup = ((2u << ((64 * warpgroup + 63) / SLICE_M - first)) - 1) << first;
    // Lane 0 alone reads what is present, and so may give the stage back for all: what it finds is
    // handed out below.
    unsigned steps = 0, mine = 0;
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
      const unsigned bits = lane == 0 ? present[i] : 0;
      steps |= unsigned((bits & of_warpgroup) != 0) << i;
      mine |= (bits >> of_warp & 1) << i;
    }
    s.count = __shfl_sync(~0u, __popc(steps), 0);
    if constexpr (!FROM_SHARED) {
      steps = __shfl_sync(~0u, steps, 0);  // each lane computes addresses of its own
      mine = __shfl_sync(~0u, mine, 0);
    }
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
      const int step = steps ? __ffs(steps) - 1 : 0;
      steps &= steps - 1;
      s.right[i] = __shfl_sync(~0u, right + step * PANEL_BYTES, 0);
      const unsigned block = stage + (step * ROWS + of_warp) * BLOCK_BYTES;
      if constexpr (FROM_SHARED) {
        s.left[i] = __shfl_sync(~0u, block, 0);
      } else {
        const bool here = mine >> step & 1;
#pragma unroll
        for (int k = 0; k < PRODUCTS; ++k) {
          unsigned a[4];
          const int m = row % SLICE_M;
          if constexpr (TRANSPOSED)
            ldmatrix_x4_trans(a, swizzled<LEFT_WIDTH>(block, 16 * k + lane / 16 * 8 + lane % 8,
                                                      2 * (m + lane / 8 % 2 * 8)));
          else
            ldmatrix_x4(a, swizzled<LEFT_WIDTH>(block, m + lane % 16, 32 * k + lane / 16 * 16));
#pragma unroll
          for (int r = 0; r < 4; ++r) s.a[i][k][r] = here ? a[r] : 0;
        }
      }
    }
  }
}

// Start the products of COUNT steps, do something else, wait for them.
template <int COUNT, typename Meanwhile>
__device__ __forceinline__ void multiply_steps(Sum (&sum)[TILE_N / 2], const Stage& s,
                                               Meanwhile meanwhile) {
  // Rows of the left operand that this warpgroup leaves to the one before it.
  const int before = FROM_SHARED ? 64 * (threadIdx.x / 128) % SLICE_M : 0;
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int k = 0; k < PRODUCTS; ++k) {
      const unsigned long long b =
          BY_N ? wgmma_operand<RIGHT_WIDTH>(s.right[i] + k * 2048, 1024, STEP_K * 128)
               : wgmma_operand<RIGHT_WIDTH>(s.right[i] + k * 32, 8 * RIGHT_WIDTH, 16);
      if constexpr (!FROM_SHARED) {
        wgmma<T, BY_N>(sum, s.a[i][k], b);
      } else if constexpr (TRANSPOSED) {
        const unsigned left = s.left[i] + before * STEP_K * SIZE + k * 16 * LEFT_WIDTH;
        wgmma<T, true, BY_N>(sum, wgmma_operand<LEFT_WIDTH>(left, 1024, STEP_K * 128), b);
      } else {
        const unsigned left = s.left[i] + before * LEFT_WIDTH + k * 32;
        wgmma<T, false, BY_N>(sum, wgmma_operand<LEFT_WIDTH>(left, 8 * LEFT_WIDTH, 16), b);
      }
    }
  }
  wgmma_commit();
  meanwhile();
  wgmma_wait<0>();
}

// The same for a count that is known at run time only: the compiler wants the products of a
// group in one straight line.
template <typename Meanwhile>
__device__ __forceinline__ void multiply(Sum (&sum)[TILE_N / 2], const Stage& s,
                                         Meanwhile meanwhile) {
  if (s.count == STEPS) {
    multiply_steps<STEPS>(sum, s, meanwhile);
  } else if (STEPS > 2 && s.count == 3) {
    multiply_steps<(STEPS > 2 ? 3 : 1)>(sum, s, meanwhile);
  } else if (STEPS > 2 && s.count == 2) {
    multiply_steps<(STEPS > 2 ? 2 : 1)>(sum, s, meanwhile);
  } else if (STEPS > 1 && s.count == 1) {
    multiply_steps<1>(sum, s, meanwhile);
  } else {
    meanwhile();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) bsr_addmm_sm90(
    const __grid_constant__ TensorMap values, const __grid_constant__ TensorMap dense,
    const __grid_constant__ TensorMap dense_edge, const __grid_constant__ TensorMap out_map,
    const __grid_constant__ View out, const __grid_constant__ Batch batch,
    const __grid_constant__ RowGroups<INDEX> schedule, const __grid_constant__ Sizes sizes,
    Sum* parts, const __grid_constant__ KernelEpilogueArgs<Sum> epilogue) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long barriers[2 + TURNED][STAGES];
  __shared__ unsigned present[STAGES][STEPS];
  unsigned char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const unsigned stages = shared_address(memory);
  TmaPipeline<STAGES> ring(barriers);
  if (threadIdx.x == 0) {
    ring.init(STEPS, CONSUMERS, TURNED ? STEPS * TURNERS : 0);
    mbarrier_init_fence();
  }
  __syncthreads();

  // One lane's number is all lanes': told so, the compiler computes addresses once for the warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (warp >= CONSUMERS) {
    give_registers<TURNED ? 72 : 40>();
    const int helper = warp - CONSUMERS;
    if (helper < STEPS)
      produce(helper, stages, ring, present, values, dense, dense_edge, schedule, sizes);
    else if (TURNED && helper < STEPS + 2)
      transpose((helper - STEPS) % STEPS, (helper - STEPS) / STEPS, stages, ring, schedule, sizes);
    return;
  }

  take_registers<TURNED ? 216 : 232>();
  unsigned char* strips = memory + STAGES * STAGE_BYTES + warp * 2 * STRIP_BYTES;
  const unsigned tiles = tile_count(sizes);
  for (unsigned round = 0, t; (t = deal(round)) < tiles; ++round) {
    const Tile tile(t, schedule, sizes);
    const int turns = (schedule.counts[tile.group] * SLICES_K + STEPS - 1) / STEPS;
    Sum sum[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] = 0;

    // Two descriptions of a stage take turns: one is multiplied while the other is made.
    Stage two[2];
    int turn = 0;
    auto look = [&](Stage& s) {
      mbarrier_wait(ring.full_barrier(), ring.parity);
      if (TURNED) mbarrier_wait(ring.transposed_barrier(), ring.parity);
      look_at(s, present[ring.stage], stages + ring.stage * STAGE_BYTES);
    };
    auto take_turn = [&](Stage& mine, Stage& next) {
      const unsigned read = ring.empty_barrier();
      ring.advance();
      ++turn;
      multiply(sum, mine, [&] {
        if (turn < turns) look(next);
      });
      __syncwarp();  // lane 0 gives the stage back for all lanes: they have read theirs of it
      if (lane == 0) mbarrier_arrive(read);
    };
    if (turns > 0) look(two[0]);
    while (turn < turns) {
      take_turn(two[0], two[1]);
      if (turn < turns) take_turn(two[1], two[0]);
    }

    write_outputs<STORING, KernelEpilogue<Sum, OUT>>(tile, warp, sum, strips, out, batch, out_map,
                                                     schedule, sizes, parts, epilogue);
  }
  if (BY_ENGINE<STORING> && lane == 0) bulk_wait_all();
}
