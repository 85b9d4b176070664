// BSR @ dense on tensor cores through mma.sync (8.0 and later): bfloat16 and float16, any block.
//
// bsr_addmm_simt.cu, to be read first, says what is computed. Here GROUP consecutive block rows
// form a group, which walks the union of its rows' block columns ("entries",
// engines/cuda/_schedule.py): a tile of `dense` is brought once for all its rows, and of the blocks
// only those that exist are brought and multiplied.
//
//   a step is STEP_K rows of `dense`: an entry, or a slice of one;
//   a stage of shared memory holds STEPS steps, STAGES stages are under way at once:
//
//       left[step][row of group]   the blocks' slices, SLICE_M x STEP_K each; missing ones keep
//                                  whatever is there
//       right                      STEPS x STEP_K rows of TILE_N columns of `dense`, or the same
//                                  column by column, as `dense` lies
//       present                    one bit for each block of the stage
//
// The roles are swapped: `dense` is what mma.sync calls a, sixteen of its columns at a time, and
// the blocks are b. So blocks are rounded up to eight rows only.
//
// Where a stage is one block, or a slice of one, nothing in the loop branches: the fragments of the
// next sixteen terms are read while these are multiplied, over the ends of stages, too, and the
// copies are dealt out among the products. In other stages the blocks that are missing are skipped.
//
// Terms are rounded up to eight. Where a block has fewer, zeros stand in both operands: those of
// `dense` are put there by the copies, those of the blocks by bsr_pad_blocks.cu, which such a
// product runs before, as it does for blocks whose rows do not begin at multiples of 16 bytes.
// What stands in rows beyond a block's is never written, so that it may be anything.
//
//   -DT, -DOUT, -DEPILOGUE, -DACT   as in bsr_addmm_simt.cu; -DINDEX of the schedule's blocks
//   -DBM, -DBK                      size of a block; its rows lie BK rounded up to eight apart
//   -DGROUP, -DSLICE_M              block rows of a group, and rows of a block that a tile holds
//   -DSTEP_K, -DSTEPS, -DSTAGES
//   -DDENSE=rows|columns            which of its strides is 1
//   -DTILE_N, shared by WARPS_N warps, as its rows are by WARPS_M: whole blocks, or equal parts;
//   -DRESIDENT                      thread blocks that a multiprocessor is to hold
#include "common/copy_ring.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/lines.cuh"
#include "common/row_groups.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp_tile.cuh"
#include "ptx/cp_async.cuh"

using namespace sparsegpu;

constexpr bool BY_ROW = Layout::DENSE == Layout::rows;
constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int TILE_M = GROUP * SLICE_M;
constexpr int WARP_M = TILE_M / WARPS_M;
constexpr int WARP_N = TILE_N / WARPS_N;
constexpr int PARTS = (BM + SLICE_M - 1) / SLICE_M;  // tiles that share a block row
constexpr int LENGTH = (BK + 7) / 8 * 8;             // of a block's row as it lies
constexpr int SLICES = (BK + STEP_K - 1) / STEP_K;   // of an entry
constexpr int SLOTS = STEPS * GROUP;                 // blocks of a stage
static_assert(SLICE_M % 8 == 0 && STEP_K % 8 == 0 && WARP_N % 16 == 0, "whole fragments");
static_assert(TILE_M % (8 * WARPS_M) == 0, "whole fragments of each warp");
static_assert(WARP_M % SLICE_M == 0 || SLICE_M % WARP_M == 0, "whole blocks, or equal parts");
static_assert((TILE_N & TILE_N - 1) == 0 && (WARP_N & WARP_N - 1) == 0, "powers of two");
static_assert(STEPS == 1 || SLICES == 1, "a stage holds entries, or a slice of one");
static_assert(SLOTS <= 64, "one word tells which blocks are there");

typedef Lines<STEP_K / 8> LeftLines;
typedef Lines<(BY_ROW ? TILE_N : STEPS * STEP_K) / 8> RightLines;
constexpr int LEFT_PITCH = LeftLines::PITCH, RIGHT_PITCH = RightLines::PITCH;
constexpr int BLOCK_BYTES = SLICE_M * LEFT_PITCH;
constexpr int LEFT_BYTES = SLOTS * BLOCK_BYTES;
constexpr int STAGE_BYTES = LEFT_BYTES + (BY_ROW ? STEPS * STEP_K : TILE_N) * RIGHT_PITCH;
static_assert(LEFT_BYTES % 128 == 0 && STAGE_BYTES % 128 == 0, "all begin in the first bank");
// Outputs on their way out, some rows of each warp at a time.
constexpr int STRIP_ROWS = WARP_M < 32 ? WARP_M : 32;
constexpr int STRIP_PITCH = WARP_N + 4;
static_assert(WARPS_M * WARPS_N * STRIP_ROWS * STRIP_PITCH * 4 <= STAGES * STAGE_BYTES, "they fit");

// A stage is one block, or a slice of one: none is missing.
constexpr bool STEADY = SLOTS == 1 && STEP_K % 32 == 0;

#include "common/group_copies.cuh"
#include "common/turned_tile.cuh"

struct Sizes {
  long long groups, block_rows;  // of one matrix of the pattern
  long long batches;             // matrices of the output
  long long columns;
  long long together;   // panels of TILE_N columns that are taken together
  int pattern_batched;  // the pattern has `batches` matrices, or one for all
};

// One tile of the output. Thread blocks that run together share a few panels of dense, and within
// these take the groups with most entries first: so all finish together.
struct Tile {
  long long group, batch, first_row, first_col;  // first_row: of blocks, within the matrix
  int part;

  __device__ __forceinline__ Tile(long long tile, const RowGroups<INDEX>& schedule,
                                  const Sizes& sizes) {
    const long long groups = sizes.groups * (sizes.pattern_batched ? sizes.batches : 1);
    const long long panels = (sizes.columns + TILE_N - 1) / TILE_N;
    part = int(tile % PARTS);
    tile /= PARTS;
    const long long matrix = tile / (groups * panels);
    tile -= matrix * groups * panels;
    const long long first = tile / (groups * sizes.together) * sizes.together;
    const long long here = min(sizes.together, panels - first);
    tile -= first * groups;
    group = schedule.order[tile / here];
    first_col = (first + tile % here) * TILE_N;
    batch = sizes.pattern_batched ? group / sizes.groups : matrix;
    first_row = (sizes.pattern_batched ? group % sizes.groups : group) * GROUP;
  }
};

struct alignas(8 * sizeof(OUT)) Piece {
  OUT outputs[8];
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    bsr_addmm_groups(const __grid_constant__ View out, const T* data,
                     const __grid_constant__ View dense, const __grid_constant__ Batch batch,
                     const __grid_constant__ RowGroups<INDEX> schedule,
                     const __grid_constant__ Sizes sizes,
                     const __grid_constant__ KernelEpilogueArgs<f32> epilogue) {
  extern __shared__ __align__(128) unsigned char stages[];
  const Tile tile(blockIdx.x, schedule, sizes);
  const long long start = schedule.starts[tile.group];
  const int count = schedule.counts[tile.group];
  const int steps = STEPS == 1 ? count * SLICES : (count + STEPS - 1) / STEPS;
  const int columns = int(min((long long)TILE_N, sizes.columns - tile.first_col));
  Left left(data + (long long)tile.part * SLICE_M * LENGTH, min(SLICE_M, BM - tile.part * SLICE_M),
            shared_address(stages));
  RightOf<BY_ROW>::Type right(
      batch_ptr<const T>(dense, batch, tile.batch) + tile.first_col * dense.col, dense, columns,
      shared_address(stages));

  // What the next stage needs of the schedule is under way, too, while one is multiplied.
  Outputs outputs(stages);
  Walk walk(schedule, start, count);
  Agenda agenda, next;
  unsigned present[STAGES][Agenda::WORDS];  // of the stages under way, the oldest first
  CopyRing<STAGE_BYTES> ring;
  walk.read(next);
  auto turn_page = [&] {
    agenda = next;
    walk.advance();
    walk.read(next);
    agenda.present(present[STAGES - 1], outputs.first_block);
  };
  // The copies go in parts, among which products are computed.
  auto copy = [&](int part, int parts) {
    right.copy(ring.stage, agenda, right.COPIES * part / parts, right.COPIES * (part + 1) / parts);
    left.copy(ring.stage, agenda, left.COPIES * part / parts, left.COPIES * (part + 1) / parts);
  };
  auto age = [&] {
#pragma unroll
    for (int s = 0; s + 1 < STAGES; ++s)
#pragma unroll
      for (int w = 0; w < Agenda::WORDS; ++w) present[s][w] = present[s + 1][w];
  };
#pragma unroll 1
  for (int step = 0; step < STAGES - 1; ++step) {
    turn_page();
    copy(0, 1);
    ring.advance();
    age();
  }
  if constexpr (STEADY) {
    // Fragments of the next sixteen terms are read while these are multiplied, over the ends of
    // stages, too. Short stages cannot wait for their copies: those are not dealt out.
    constexpr int DEPTHS = STEP_K / 16, PARTS_OF_COPIES = DEPTHS < 4 ? 1 : DEPTHS;
    Outputs::Depth depths[2];
    ring.wait();
    outputs.read(depths[0], 0, ring.next);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int d = 0; d < DEPTHS; ++d) {
        if (d + 1 < DEPTHS) outputs.read(depths[(d + 1) % 2], d + 1, ring.next);
        if (d == 0) turn_page();
        if (d < PARTS_OF_COPIES) copy(d, PARTS_OF_COPIES);
        if (d + 1 == DEPTHS) {
          ring.advance();
          ring.wait();
          outputs.read(depths[0], 0, ring.next);
        }
        outputs.multiply(depths[d % 2]);
      }
      age();
    }
  } else {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      ring.wait();
      turn_page();
      copy(0, 1);
      ring.advance();
      outputs.multiply(ring.stage, present[0]);
      age();
    }
  }
  ring.drain();

  const KernelEpilogue<f32, OUT> finish(epilogue, batch, tile.batch);
  OUT* matrix = batch_ptr<OUT>(out, batch, tile.batch);
  // The output's row of a tile's row, or -1.
  auto row_of = [&](int m) {
    const int within = tile.part * SLICE_M + m % SLICE_M;
    const long long block_row = tile.first_row + m / SLICE_M;
    return within < BM && block_row < sizes.block_rows ? block_row * BM + within : -1;
  };
  auto write_one = [&](int m, int n, f32 sum) {
    const long long r = row_of(m), c = tile.first_col + n;
    if (r >= 0 && n < columns) matrix[element_offset(out, r, c)] = finish(sum, r, c);
  };
  auto write = [&](int m, int n, const f32* sums) {
    const long long r = row_of(m), c = tile.first_col + n;
    if (r < 0) return;
    Piece piece;
#pragma unroll
    for (int i = 0; i < 8; ++i) piece.outputs[i] = finish(sums[i], r, c + i);
    *reinterpret_cast<Piece*>(matrix + r * out.row + c) = piece;
  };
  const long long bits = reinterpret_cast<long long>(matrix) | out.row * (long long)sizeof(OUT);
  const bool in_pieces = out.col == 1 && bits % sizeof(Piece) == 0 && columns == TILE_N;
  outputs.finish(stages, in_pieces, out.row < out.col, write, write_one);
}
