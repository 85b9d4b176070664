// BSR @ dense on Hopper's tensor cores (9.0a): bfloat16, float16, int8, and float32 as TF32,
// through wgmma.
//
// bsr_addmm_simt.cu, to be read first, says what is computed. Here ROWS block rows form a group:
// 128 rows of the output where the block size divides 128. A group has an entry for each block
// column in which any of its rows has a block (engines/cuda/_schedule.py), so that a tile of
// `dense` is copied once for all its rows. Only blocks that exist are copied and multiplied.
//
//   a step is STEP_K rows of `dense`: an entry, or a slice of one (STEP_K divides BK);
//   a stage of shared memory holds STEPS steps, STAGE_K rows of `dense` in all, 128 bytes of k:
//
//       left[step][row of group]   the blocks' slices, BM x STEP_K each; missing ones not written
//       right[step]                STEP_K x TILE_N of `dense`
//       present[step]              one bit for each row of the group
//
// There is a producer warp for each step of a stage; it starts TMA copies, STAGES stages ahead. Two
// consumer warpgroups own 64 rows x TILE_N of the output each. Where a block covers 64 rows, its
// warpgroup multiplies it from shared memory. Smaller blocks go through registers: there a warp
// whose block is missing puts zeros, and the warpgroup skips steps in which it has no block at all.
// In either case the operands of the next stage are prepared while the products of this one run.
//
// Thread blocks are persistent. Tiles are ordered with the group fastest (all groups share the same
// columns of `dense` in L2), groups with most entries first, and the matrices of a batched `dense`
// one after the other. Nothing is added across thread blocks except in bsr_addmm_sm90_reduce.cu,
// where long groups were split along k, and there in a fixed order: the result is deterministic.
//
//   -DT, -DOUT, -DEPILOGUE, -DACT   as in bsr_addmm_simt.cu; -DINDEX of the schedule's blocks
//   -DBM, -DBK            size of a block (BM: 128 of its rows at a time): multiples of 16 rows,
//                         and of 32 bytes of k
//   -DTRANSPOSED=1        blocks are stored transposed, BK x BM (BM: 16, 32 or a multiple of 64)
//   -DDENSE=rows|columns  which of its strides is 1
//   -DSTORE=rows|columns|unaligned|elementwise  how `out` is stored (common/epilogue_store.cuh)
//   -DTILE_N=64|128|256, -DSTAGES
//   -DSPLIT_K=0|1         1: some groups are split along k
//
// wgmma reads int8 and TF32 as K-major only: -DT=s8 and -DT=f32 go with TRANSPOSED=0, and -DT=f32
// with DENSE=columns. Where -DT=s8 goes with DENSE=rows, warps of the producers' warpgroup also
// transpose each step of `dense` in place once it has been copied, in squares of STEP_K bytes
// (bsr_addmm_sm90/smem_transpose.cuh). Of float32, wgmma truncates what TF32 has no bits for
// (dense_lines.cu rounds, where it makes the columns).
#include "bsr_addmm_sm90/smem_transpose.cuh"
#include "common/ceil_div.cuh"
#include "common/dense_tile_tma.cuh"
#include "common/epilogue_store.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/split_k.cuh"
#include "common/tile_scheduler.cuh"
#include "common/tma_pipeline.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp_arrive.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

using namespace sparsegpu;

constexpr Store HOW = Store::STORE;
typedef Acc<T>::type Sum;
constexpr int SIZE = sizeof(T);
constexpr int STAGE_K = 128 / SIZE;
constexpr int STEP_K = BK % STAGE_K == 0         ? STAGE_K
                       : BK % (STAGE_K / 2) == 0 ? STAGE_K / 2
                                                 : STAGE_K / 4;
constexpr int STEPS = STAGE_K / STEP_K;
constexpr int SLICES_K = BK / STEP_K;
constexpr int PRODUCTS = STEP_K * SIZE / 32;  // of a step: wgmma takes 32 bytes of k

typedef RowGroupTile<BM, TILE_N> Tile;
constexpr int ROWS = Tile::Shape::ROWS, SLICE_M = Tile::Shape::SLICE_M;
constexpr int TILE_M = Tile::Shape::TILE_M;
typedef DenseTileTma<T, Layout::DENSE, STEP_K, TILE_N> Right;
constexpr bool TRANSPOSE_RIGHT = Layout::DENSE == Layout::rows && SIZE == 1;
static_assert(SIZE == 2 || !TRANSPOSED, "blocks of an int8 or TF32 product are K-major");

// The blocks' slices in shared memory, in lines as wide as the tensor map's swizzle.
constexpr int BOX_M = SLICE_M % 64 == 0 ? 64 : SLICE_M;  // m of a box of transposed blocks
constexpr int LEFT_WIDTH = SIZE * (TRANSPOSED ? BOX_M : STEP_K);
constexpr int BLOCK_BYTES = SLICE_M * STEP_K * SIZE;
constexpr int LEFT_BYTES = STEPS * ROWS * BLOCK_BYTES;
constexpr int STAGE_BYTES = LEFT_BYTES + STEPS * Right::BYTES;
static_assert(STAGE_BYTES % 1024 == 0, "every stage begins where a swizzle's pattern does");

constexpr int CONSUMERS = 8;  // warps
constexpr int THREADS = 32 * CONSUMERS + 128;
constexpr int TRANSPOSERS = 2 / STEPS;  // warps that transpose a step
static_assert(!TRANSPOSE_RIGHT || TRANSPOSERS > 0, "two warps transpose the steps of a stage");
constexpr bool FROM_SHARED = SLICE_M % 64 == 0;
constexpr bool ALWAYS = ROWS == 1 && STEPS == 1;  // no step of a stage lacks its block
typedef TmaPipeline<STAGES> Pipeline;

// Fill step `step` of every stage; each of the lanes 0 .. ROWS - 1 copies one block.
template <typename Present>
__device__ __forceinline__ void produce(int step, unsigned stages, Pipeline pipeline,
                                        Present present, const TensorMap& values,
                                        const TensorMap& dense, const TensorMap& dense_edge,
                                        const RowGroups<INDEX>& schedule,
                                        const RowGroupProblem& problem) {
  const int lane = threadIdx.x % 32;
  const unsigned tiles = Tile::count(problem);
  for (unsigned round = 0, t; (t = zigzag_tile(round)) < tiles; ++round) {
    const Tile tile(t, schedule, problem);
    const Right right((long long)tile.column_tile * TILE_N, problem.n,
                      problem.dense_batched ? int(tile.batch) : 0);
    SchedulePrefetch<INDEX, ROWS, SLICES_K, STEPS> prefetch(schedule, tile.group, step);
    for (int first = 0, stage = 0; first < prefetch.count(); first += STEPS, ++stage) {
      prefetch.advance_to(stage);
      const long long my_block = prefetch.my_block();
      const int column = prefetch.block_column();
      const bool mine = lane < ROWS && my_block >= 0;
      const unsigned bits = __ballot_sync(~0u, mine);
      const int slice = (first + step) % SLICES_K;

      mbarrier_wait(pipeline.empty_barrier(), pipeline.parity ^ 1);
      const unsigned full = pipeline.full_barrier();
      const unsigned to = stages + pipeline.stage * STAGE_BYTES;
      if (lane == 0) {
        present[pipeline.stage][step] = bits;
        mbarrier_arrive_expect_tx(full,
                                  __popc(bits) * BLOCK_BYTES + (column >= 0 ? Right::BYTES : 0));
        if (column >= 0)
          right.load(to + LEFT_BYTES + step * Right::BYTES, dense, dense_edge,
                     column * BK + slice * STEP_K,
                     [&](unsigned box, const TensorMap& map, auto... coordinates) {
                       tma_load(box, map, full, coordinates...);
                     });
      }
      __syncwarp();  // expect the bytes before they arrive
      if (mine) {
        const unsigned left = to + (step * ROWS + lane) * BLOCK_BYTES;
        if (!TRANSPOSED) {
          tma_load(left, values, full, slice * STEP_K, int(my_block * BM + tile.slice * TILE_M));
        } else {
          for (int m = 0; m < SLICE_M; m += BOX_M)
            tma_load(left + m * STEP_K * SIZE, values, full, tile.slice * TILE_M + m,
                     int(my_block * BK + slice * STEP_K));
        }
      }
      pipeline.advance();
    }
  }
}

// Transpose step `step` of `dense` of every stage: every TRANSPOSERS-th square, from `part` on.
__device__ __forceinline__ void transpose(int step, int part, unsigned stages, Pipeline pipeline,
                                          const RowGroups<INDEX>& schedule,
                                          const RowGroupProblem& problem) {
  const SmemTranspose8<Right::LINE_BYTES> transposer;
  const unsigned tiles = Tile::count(problem);
  for (unsigned round = 0, t; (t = zigzag_tile(round)) < tiles; ++round) {
    const Tile tile(t, schedule, problem);
    const int steps = schedule.counts[tile.group] * SLICES_K;
    for (int first = 0; first < steps; first += STEPS) {
      mbarrier_wait(pipeline.full_barrier(), pipeline.parity);
      const unsigned right =
          stages + pipeline.stage * STAGE_BYTES + LEFT_BYTES + step * Right::BYTES;
      if (first + step < steps) {
        for (int n = part * Right::BOX; n < TILE_N; n += TRANSPOSERS * Right::BOX)
          transposer.transpose(right + n * Right::LINE_BYTES);
        fence_async_proxy();  // wgmma reads through the async proxy
      }
      warp_arrive(pipeline.transposed_barrier());
      pipeline.advance();
    }
  }
}

// The operands of a stage, for a consumer warp: of the steps that it multiplies, without gaps.
struct StageOperands {
  int count;
  unsigned left[FROM_SHARED ? STEPS : 1];            // the warpgroup's blocks in shared memory ...
  unsigned a[FROM_SHARED ? 1 : STEPS][PRODUCTS][4];  // ... or fragments of the warp's blocks
  unsigned right[STEPS];
};

__device__ __forceinline__ void prepare(StageOperands& s, const unsigned* present, unsigned stage) {
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
    // Lane 0 alone reads `present` and broadcasts what it finds, because lane 0 alone releases the
    // stage for the warp.
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
      s.right[i] = __shfl_sync(~0u, right + step * Right::BYTES, 0);
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
            ldmatrix_x4_trans(a,
                              swizzled_address<LEFT_WIDTH>(block, 16 * k + lane / 16 * 8 + lane % 8,
                                                           2 * (m + lane / 8 % 2 * 8)));
          else
            ldmatrix_x4(
                a, swizzled_address<LEFT_WIDTH>(block, m + lane % 16, 32 * k + lane / 16 * 16));
#pragma unroll
          for (int r = 0; r < 4; ++r) s.a[i][k][r] = here ? a[r] : 0;
        }
      }
    }
  }
}

// Start the products of Count steps, call meanwhile(), and wait for them.
template <int Count, typename Meanwhile>
__device__ __forceinline__ void multiply_steps(Sum (&sum)[TILE_N / 2], const StageOperands& s,
                                               Meanwhile meanwhile) {
  // The warpgroup's first row of its block.
  const int first_row = FROM_SHARED ? 64 * (threadIdx.x / 128) % SLICE_M : 0;
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < Count; ++i) {
#pragma unroll
    for (int k = 0; k < PRODUCTS; ++k) {
      const unsigned long long b = Right::descriptor(s.right[i], k * 32);
      if constexpr (!FROM_SHARED) {
        wgmma<T, Right::MN_MAJOR>(sum, s.a[i][k], b);
      } else if constexpr (TRANSPOSED) {
        const unsigned left = s.left[i] + first_row * STEP_K * SIZE + k * 16 * LEFT_WIDTH;
        wgmma<T, true, Right::MN_MAJOR>(sum, smem_descriptor<LEFT_WIDTH>(left, 1024, STEP_K * 128),
                                        b);
      } else {
        const unsigned left = s.left[i] + first_row * LEFT_WIDTH + k * 32;
        wgmma<T, false, Right::MN_MAJOR>(sum, smem_descriptor<LEFT_WIDTH>(left, 8 * LEFT_WIDTH, 16),
                                         b);
      }
    }
  }
  wgmma_commit();
  meanwhile();
  wgmma_wait<0>();
}

// The same for a count that is known at run time only: the compiler needs the products of a group
// in straight-line code.
template <typename Meanwhile>
__device__ __forceinline__ void multiply(Sum (&sum)[TILE_N / 2], const StageOperands& s,
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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_addmm_sm90(const __grid_constant__ TensorMap values,
                   const __grid_constant__ TensorMap dense,
                   const __grid_constant__ TensorMap dense_edge,
                   const __grid_constant__ TensorMap out_map, const __grid_constant__ View out,
                   const __grid_constant__ Batch batch,
                   const __grid_constant__ RowGroups<INDEX> schedule,
                   const __grid_constant__ RowGroupProblem problem, Sum* partials,
                   const __grid_constant__ KernelEpilogueArgs<Sum> epilogue) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long barriers[2 + TRANSPOSE_RIGHT][STAGES];
  __shared__ unsigned present[STAGES][STEPS];
  unsigned char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const unsigned stages = shared_address(memory);
  Pipeline pipeline(barriers);
  if (threadIdx.x == 0) {
    pipeline.init(STEPS, CONSUMERS * WARP_ARRIVALS,
                  TRANSPOSE_RIGHT ? STEPS * TRANSPOSERS * WARP_ARRIVALS : 0);
    mbarrier_init_fence();
  }
  __syncthreads();

  // Broadcast: makes `warp` warp-uniform, so that addresses are computed once for the warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (warp >= CONSUMERS) {
    setmaxnreg_dec<TRANSPOSE_RIGHT ? 72 : 40>();
    const int helper = warp - CONSUMERS;
    if (helper < STEPS)
      produce(helper, stages, pipeline, present, values, dense, dense_edge, schedule, problem);
    else if (TRANSPOSE_RIGHT && helper < STEPS + 2)
      transpose((helper - STEPS) % STEPS, (helper - STEPS) / STEPS, stages, pipeline, schedule,
                problem);
    return;
  }

  setmaxnreg_inc<TRANSPOSE_RIGHT ? 216 : 232>();
  unsigned char* buffers = memory + STAGES * STAGE_BYTES + warp * 2 * BUFFER_BYTES;
  const unsigned tiles = Tile::count(problem);
  for (unsigned round = 0, t; (t = zigzag_tile(round)) < tiles; ++round) {
    const Tile tile(t, schedule, problem);
    const int count = ceil_div(schedule.counts[tile.group] * SLICES_K, STEPS);  // stages
    Sum sum[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] = 0;

    // Double-buffered operands: those of one stage are multiplied while the next are prepared.
    StageOperands operands[2];
    int done = 0;
    auto prepare_next = [&](StageOperands& s) {
      mbarrier_wait(pipeline.full_barrier(), pipeline.parity);
      if (TRANSPOSE_RIGHT) mbarrier_wait(pipeline.transposed_barrier(), pipeline.parity);
      prepare(s, present[pipeline.stage], stages + pipeline.stage * STAGE_BYTES);
    };
    auto multiply_stage = [&](StageOperands& current, StageOperands& next) {
      const unsigned empty = pipeline.empty_barrier();
      pipeline.advance();
      ++done;
      multiply(sum, current, [&] {
        if (done < count) prepare_next(next);
      });
      warp_arrive(empty, lane);
    };
    if (count > 0) prepare_next(operands[0]);
    while (done < count) {
      multiply_stage(operands[0], operands[1]);
      if (done < count) multiply_stage(operands[1], operands[0]);
    }

    store_tile<HOW, SPLIT_K, KernelEpilogue<Sum, OUT>>(
        tile, warp, sum, buffers, out, batch, out_map, schedule, problem, partials, epilogue);
  }
  if (BY_TMA<HOW> && lane == 0) tma_store_wait_all();
}
