// The row groups that bsr_addmm_sm90.cu cut into parts: adds the parts' sums and finishes them.
//
// A warp takes sixteen rows and a strip of columns of a tile, and adds the parts from first to
// last: an order that depends on the pattern alone.
//
// -DT, -DOUT, -DEPILOGUE, -DACT, -DINDEX, -DBM, -DSTORE, -DTILE_N as in bsr_addmm_sm90.cu.
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/group_parts.cuh"
#include "common/row_groups.cuh"
#include "common/strip.cuh"

using namespace sparsegpu;

constexpr Store STORING = Store::STORE;
typedef Acc<T>::type Sum;

// The tile, as bsr_addmm_sm90.cu has it.
constexpr int TILE_M = 128;
constexpr int SLICE_M = BM < TILE_M ? BM : TILE_M;
constexpr int SLICES_M = (BM + TILE_M - 1) / TILE_M;
constexpr int ROWS = TILE_M / SLICE_M;
constexpr int CONSUMERS = 8;

constexpr int WARPS = 4;
constexpr int COLUMNS = sizeof(OUT) == 1 ? 128 : 64;  // that a warp takes
constexpr int AT_ONCE = 4;                            // parts whose sums are on their way together
static_assert(TILE_N % COLUMNS == 0, "whole strips");

// A group in parts, which are number first .. first + count - 1.
struct CutGroup {
  int number, first, count;
};

struct Sizes {
  long long groups;  // that were cut
  long long batches;
  long long rows, columns;
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    bsr_addmm_sm90_parts(const __grid_constant__ TensorMap out_map,
                         const __grid_constant__ View out, const __grid_constant__ Batch batch,
                         const __grid_constant__ RowGroups<INDEX> schedule, const CutGroup* cut,
                         const __grid_constant__ Sizes sizes, Sum* parts,
                         const __grid_constant__ KernelEpilogueArgs<Sum> epilogue) {
  __shared__ __align__(1024) unsigned char memory[WARPS][2 * STRIP_BYTES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const long long across = (sizes.columns + COLUMNS - 1) / COLUMNS;
  const long long works = sizes.groups * sizes.batches * SLICES_M * CONSUMERS * across;
  for (long long work = (long long)blockIdx.x * WARPS + warp; work < works;
       work += (long long)gridDim.x * WARPS) {
    const long long first_col = work % across * COLUMNS;
    long long rest = work / across;
    const int sixteen = int(rest % CONSUMERS);
    rest /= CONSUMERS;
    const int slice = int(rest % SLICES_M);
    rest /= SLICES_M;
    const int b = int(rest % sizes.batches);
    const CutGroup group = cut[rest / sizes.batches];
    const int row = 16 * sixteen + slice * TILE_M;  // of the group
    long long top = (long long)group.number * (BM * ROWS) + row;
    if (ROWS > 1 && row < BM * ROWS && schedule.block_rows) {
      const int block_row = schedule.block_rows[group.number * (long long)ROWS + row / BM];
      top = block_row < 0 ? sizes.rows : block_row * (long long)BM + row % BM;
    }
    if (row >= BM * ROWS || top >= sizes.rows) continue;

    Sum sum[COLUMNS / 2];
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) sum[i] = 0;
#pragma unroll(AT_ONCE)
    for (int p = 0; p < group.count; ++p) {
      const long long at = part_tile<TILE_N>((group.first + p) * (long long)SLICES_M + slice, b,
                                             sizes.batches, first_col / TILE_N, sizes.columns);
      const Four<Sum>* fragments =
          part_fragments<TILE_N, CONSUMERS>(parts, at, sixteen) + first_col % TILE_N / 8 * 32;
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; ++j) {
        const Four<Sum> four = fragments[32 * j];
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[4 * j + i] += four.at[i];
      }
    }

    const KernelEpilogue<Sum, OUT> finish(epilogue, batch, b);
    finish.times_alpha(sum);
    finish.dispatch_access(first_col, COLUMNS, sizes.columns, [&](auto access) {
      write_tile<STORING>(access, sum, memory[warp], out, batch_ptr<OUT>(out, batch, b), out_map,
                          top, first_col, sizes.columns, b, finish);
    });
  }
  if (BY_ENGINE<STORING> && lane == 0) bulk_wait_all();
}
