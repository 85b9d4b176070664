// The reduction of split-K for bsr_addmm_sm90.cu: adds the partial sums of groups that were split,
// and applies the epilogue.
//
// A warp takes sixteen rows and COLUMNS columns of a tile, and adds the splits from first to last:
// an order that depends on the pattern alone.
//
// -DT, -DOUT, -DEPILOGUE, -DACT, -DINDEX, -DBM, -DSTORE, -DTILE_N as in bsr_addmm_sm90.cu.
#include "common/ceil_div.cuh"
#include "common/epilogue_store.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/split_k.cuh"
#include "common/tile_scheduler.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

constexpr Store HOW = Store::STORE;
typedef Acc<T>::type Sum;
typedef RowGroupShape<BM> Shape;
constexpr int CONSUMERS = Shape::TILE_M / 16;  // warps of bsr_addmm_sm90 that own a tile

constexpr int WARPS = 4;
constexpr int COLUMNS = sizeof(OUT) == 1 ? 128 : 64;  // that a warp takes
constexpr int IN_FLIGHT = 4;                          // splits whose sums are loaded at once
static_assert(TILE_N % COLUMNS == 0, "whole buffers");

// A group that was split: its partial sums are number first .. first + count - 1.
struct ReducedGroup {
  int number, first, count;
};

struct ReduceProblem {
  long long groups;  // that were split
  long long batches;
  long long m, n;
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    bsr_addmm_sm90_reduce(const __grid_constant__ TensorMap out_map,
                          const __grid_constant__ View out, const __grid_constant__ Batch batch,
                          const __grid_constant__ RowGroups<INDEX> schedule,
                          const ReducedGroup* reduced,
                          const __grid_constant__ ReduceProblem problem, Sum* partials,
                          const __grid_constant__ KernelEpilogueArgs<Sum> epilogue) {
  __shared__ __align__(1024) unsigned char memory[WARPS][2 * BUFFER_BYTES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const long long across = ceil_div(problem.n, COLUMNS);
  const long long items = problem.groups * problem.batches * Shape::SLICES_M * CONSUMERS * across;
  for (long long item = (long long)blockIdx.x * WARPS + warp; item < items;
       item += (long long)gridDim.x * WARPS) {
    const long long first_col = item % across * COLUMNS;
    long long rest = item / across;
    const int sixteen = int(rest % CONSUMERS);
    rest /= CONSUMERS;
    const int slice = int(rest % Shape::SLICES_M);
    rest /= Shape::SLICES_M;
    const int b = int(rest % problem.batches);
    const ReducedGroup group = reduced[rest / problem.batches];
    const int row = 16 * sixteen + slice * Shape::TILE_M;  // of the group
    // As Shape::output_row(), in the form for which the compiler needs no local memory.
    long long top = (long long)group.number * Shape::GROUP_M + row;
    if (Shape::ROWS > 1 && row < Shape::GROUP_M && schedule.block_rows) {
      const int block_row = schedule.block_rows[group.number * (long long)Shape::ROWS + row / BM];
      top = block_row < 0 ? problem.m : block_row * (long long)BM + row % BM;
    }
    if (row >= Shape::GROUP_M || top >= problem.m) continue;

    Sum sum[COLUMNS / 2];
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) sum[i] = 0;
#pragma unroll(IN_FLIGHT)
    for (int s = 0; s < group.count; ++s) {
      const long long at =
          partial_tile<TILE_N>((group.first + s) * (long long)Shape::SLICES_M + slice, b,
                               problem.batches, first_col / TILE_N, problem.n);
      const FragmentSums<Sum>* fragments =
          partial_sums<TILE_N, CONSUMERS>(partials, at, sixteen) + first_col % TILE_N / 8 * 32;
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; ++j) {
        const FragmentSums<Sum> four = fragments[32 * j];
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[4 * j + i] += four.at[i];
      }
    }

    const KernelEpilogue<Sum, OUT> finish(epilogue, batch, b);
    finish.times_alpha(sum);
    finish.dispatch_access(first_col, COLUMNS, problem.n, [&](auto access) {
      write_tile<HOW>(access, sum, memory[warp], out, batch_ptr<OUT>(out, batch, b), out_map, top,
                      first_col, problem.n, b, finish);
    });
  }
  if (BY_TMA<HOW> && lane == 0) tma_store_wait_all();
}
