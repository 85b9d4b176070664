// Products of pairs of 16-bit blocks, added where index lists say, on Hopper's tensor cores (9.0a),
// through wgmma.
//
// The idea is that of scatter_mm_simt.cu, to be read first: a tile of the output is the sum of the
// products of its pairs. A team of one consumer warpgroup and one producer warp computes 64 x
// TILE_N outputs at a time; a thread block has TEAMS of them, each with a pipeline of its own, so
// that some multiply while others add to the accumulators. Thread blocks are persistent.
//
// Each stage is a slice of 64 terms of one pair: 64 rows of the block, and panels of 64 columns of
// the other, a line for each term. Both come by TMA; an other that begins between multiples of 16
// bytes, where no box can, is copied by the producer's lanes. It looks up 32 pairs at a time.
//
// -DT, -DINDEX, -DFORMAT, -DOUT, -DEPILOGUE, -DGROUP_SIZE as in scatter_mm_simt.cu; -DKS columns of
// a block, a multiple of 64, as its rows are; -DTILE_N=64|128|256, -DTEAMS, -DSTAGES of a team.
#include "common/ceil_div.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/pair_sum.cuh"
#include "common/scatter_store.cuh"
#include "common/tma_pipeline.cuh"
#include "common/warp_arrive.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/wgmma.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
constexpr ListFormat LIST_FORMAT = ListFormat::FORMAT;
constexpr bool STACKS = LIST_FORMAT == ListFormat::pairs;  // of matrices, not rows of wide ones
constexpr int TILE_M = 64, SLICE_K = 64, PANEL = 64, LINE_BYTES = 128;
constexpr int LEFT_BYTES = TILE_M * LINE_BYTES, PANEL_BYTES = SLICE_K * LINE_BYTES;
constexpr int STAGE_BYTES = LEFT_BYTES + TILE_N / PANEL * PANEL_BYTES;
constexpr int SLICES = KS / SLICE_K;        // of a pair
constexpr int THREADS = 128 * (TEAMS + 1);  // the last warpgroup: a producer for each team
constexpr int STAGED = 32, STAGING_PITCH = STAGED + 8;  // columns that a warp adds at a time
constexpr int STAGING = 16 * STAGING_PITCH;             // floats of a warp
static_assert(sizeof(T) == 2 && KS % SLICE_K == 0, "a slice is of one pair");
static_assert(TEAMS <= 3, "registers");

typedef PairSum<LIST_FORMAT> Pairs;
typedef ScatterPart<LIST_FORMAT, TILE_M, TILE_N, GROUP_SIZE> Part;
typedef TmaPipeline<STAGES> Pipeline;
typedef OutputMatrix<KernelEpilogue<A, OUT>> Accumulators;

// The operands as tensor maps (matrix, line, position in the line), and which matrix of these a
// block, and an other or a matrix of the batch, reads; `elements` are those of the others.
struct ScatterMaps {
  TensorMap blocks, others;
};
struct ScatterMatrices {
  View blocks, others, elements;
};

// Copy a slice of an other into swizzled panels, element by element, by the lanes of a warp; zeros
// behind its columns.
__device__ __forceinline__ void copy_slice(unsigned char* panels, const T* from, long long pitch,
                                           int columns) {
  constexpr int ACROSS = TILE_N / 8;  // vectors of a line
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < SLICE_K * ACROSS; i += 32) {
    const int line = i / ACROSS, column = i % ACROSS * 8;
    alignas(16) T values[8];
#pragma unroll
    for (int e = 0; e < 8; ++e)
      values[e] = column + e < columns ? from[line * pitch + column + e] : round_to<T>(0.f);
    const unsigned at =
        swizzled_address<LINE_BYTES>(column / PANEL * PANEL_BYTES, line, column % PANEL * 2);
    *reinterpret_cast<uint4*>(panels + at) = *reinterpret_cast<const uint4*>(values);
  }
  fence_async_proxy();  // wgmma reads through the async proxy
}

// The parts of tiles that a team takes, one after the other.
__device__ __forceinline__ long long first_part(int team) {
  return (long long)team * gridDim.x + blockIdx.x;
}
__device__ __forceinline__ long long parts_at_once() {
  return (long long)gridDim.x * TEAMS;
}

__device__ __forceinline__ void produce(int team, unsigned char* memory, Pipeline pipeline,
                                        const ScatterMaps& maps, const ScatterMatrices& matrices,
                                        const Lists<INDEX>& lists, const Batch& batch,
                                        const ScatterProblem& problem) {
  const int lane = threadIdx.x % 32;
  const unsigned stages = shared_address(memory);
  const long long parts = Part::count(problem);
  for (long long x = first_part(team); x < parts; x += parts_at_once()) {
    const Part part(problem, x);
    const Pairs tile(lists, problem, part.tile);
    const int panels = ceil_div(part.columns, PANEL);
    const int of_batch = STACKS ? 0 : int(batch_offset(matrices.others, batch, part.batch));
    for (long long first = tile.first; first < tile.end; first += 32) {
      const int count = int(min(32ll, tile.end - first));
      int block = 0, matrix = of_batch, row = 0, column = part.first_col;  // of the lane's pair
      if (lane < count) {
        long long p, q;
        tile.numbers(lists, first + lane, p, q);
        block = int(p * matrices.blocks.batch[3]);
        if (STACKS) {
          matrix = int(q * matrices.others.batch[3]);
        } else {
          row = int(q / problem.n);
          column += int(q % problem.n);
        }
      }
      for (int i = 0; i < count; ++i) {
        const int b = __shfl_sync(~0u, block, i), z = __shfl_sync(~0u, matrix, i);
        const int y = __shfl_sync(~0u, row, i), c = __shfl_sync(~0u, column, i);
        const bool in_boxes = STACKS || c % 8 == 0;
#pragma unroll 1
        for (int k = 0; k < KS; k += SLICE_K) {
          mbarrier_wait(pipeline.empty_barrier(), pipeline.parity ^ 1);
          const unsigned full = pipeline.full_barrier();
          const unsigned left = stages + pipeline.stage * STAGE_BYTES, right = left + LEFT_BYTES;
          if (!in_boxes) {
            const View& others = matrices.elements;
            copy_slice(memory + pipeline.stage * STAGE_BYTES + LEFT_BYTES,
                       batch_ptr<const T>(others, batch, part.batch) + (y + k) * others.row + c,
                       others.row, part.columns);
            __syncwarp();  // it is there before lane 0 says so
          }
          if (lane == 0) {
            mbarrier_arrive_expect_tx(full, LEFT_BYTES + (in_boxes ? panels * PANEL_BYTES : 0));
            tma_load(left, maps.blocks, full, k, part.first_row, b);
          }
          __syncwarp();  // expect the bytes before they arrive
          if (in_boxes && lane < panels)
            tma_load(right + lane * PANEL_BYTES, maps.others, full, c + lane * PANEL, y + k, z);
          pipeline.advance();
        }
      }
    }
  }
}

// Start the products of a stage.
__device__ __forceinline__ void multiply(A (&sum)[TILE_N / 2], unsigned stage) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < SLICE_K; k += 16)
    wgmma<T, false, true>(sum, smem_descriptor<LINE_BYTES>(stage + k * 2, 8 * LINE_BYTES, 16),
                          smem_descriptor<LINE_BYTES>(stage + LEFT_BYTES + k * LINE_BYTES,
                                                      8 * LINE_BYTES, PANEL_BYTES));
  wgmma_commit();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    scatter_mm_sm90(const __grid_constant__ ScatterMaps maps,
                    const __grid_constant__ ScatterMatrices matrices,
                    const __grid_constant__ View accumulators,
                    const __grid_constant__ Lists<INDEX> lists, const __grid_constant__ Batch batch,
                    const __grid_constant__ ScatterProblem problem,
                    const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long barriers[TEAMS][2][STAGES];
  unsigned char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  // Broadcast: makes `warp` warp-uniform.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const bool consumes = warp < 4 * TEAMS;
  const int team = consumes ? warp / 4 : min(warp - 4 * TEAMS, TEAMS - 1);
  Pipeline pipeline(barriers[team]);
  if (warp % 4 == 0 && consumes && lane == 0) {
    pipeline.init(1, 4 * WARP_ARRIVALS);
    mbarrier_init_fence();
  }
  __syncthreads();

  unsigned char* const of_team = memory + team * STAGES * STAGE_BYTES;
  if (!consumes) {
    setmaxnreg_dec<72>();
    if (warp < 5 * TEAMS) produce(team, of_team, pipeline, maps, matrices, lists, batch, problem);
    return;
  }
  const unsigned stages = shared_address(of_team);
  setmaxnreg_inc<TEAMS == 3 ? 144 : 216>();

  A* const staging = reinterpret_cast<A*>(memory + TEAMS * STAGES * STAGE_BYTES) + warp * STAGING;
  const long long parts = Part::count(problem);
  for (long long x = first_part(team); x < parts; x += parts_at_once()) {
    const Part part(problem, x);
    const Pairs tile(lists, problem, part.tile);
    const long long slices = (tile.end - tile.first) * SLICES;
    if (slices == 0) continue;
    A sum[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] = 0;
    mbarrier_wait(pipeline.full_barrier(), pipeline.parity);
    multiply(sum, stages + pipeline.stage * STAGE_BYTES);
    for (long long slice = 1; slice < slices; ++slice) {
      const unsigned last = pipeline.empty_barrier();
      pipeline.advance();
      mbarrier_wait(pipeline.full_barrier(), pipeline.parity);
      multiply(sum, stages + pipeline.stage * STAGE_BYTES);
      wgmma_wait<1>();
      warp_arrive(last);
    }
    wgmma_wait<0>();
    warp_arrive(pipeline.empty_barrier());
    pipeline.advance();

    const Accumulators matrix(accumulators, batch, epilogue, part.batch);
    const TileAccumulators<Accumulators> to(matrix, tile.row + part.first_row,
                                            tile.col + part.first_col, part.rows, part.columns);
#pragma unroll
    for (int c = 0; c < TILE_N; c += STAGED) {
      if (c < part.columns) {
#pragma unroll
        for (int i = 0; i < STAGED / 2; ++i)
          staging[(lane / 4 + i / 2 % 2 * 8) * STAGING_PITCH + i / 4 * 8 + lane % 4 * 2 + i % 2] =
              sum[c / 2 + i];
        __syncwarp();
        to.add<STAGED, STAGING_PITCH>(staging, 16 * (warp % 4), c);
        __syncwarp();
      }
    }
  }
}
