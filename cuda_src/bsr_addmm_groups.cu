// BSR @ dense on tensor cores through mma.sync (8.0 and later): bfloat16 and float16, any block.
//
// bsr_addmm_simt.cu, to be read first, says what is computed. Here GROUP consecutive block rows
// form a group, which takes the union of its rows' block columns ("entries",
// engines/cuda/_schedule.py): a tile of `dense` is loaded once for all its rows, and of the blocks
// only those that are stored are loaded and multiplied.
//
//   a step is STEP_K rows of `dense`: an entry, or a slice of one;
//   a stage of shared memory holds STEPS steps, in a pipeline of STAGES stages:
//
//       left[step][row of group]   the blocks' slices, SLICE_ROWS x STEP_K each; missing ones are
//                                  not written
//       right                      STEPS x STEP_K rows of TILE_N columns of `dense`, row by row or
//                                  column by column, as `dense` lies
//       present                    one bit for each block of the stage
//
// The roles are swapped: `dense` is what mma.sync calls a, sixteen of its columns at a time, and
// the blocks are b. So blocks are rounded up to eight rows only.
//
// Where a stage is one block, or a slice of one, the loop has no branches: the fragments of the
// next sixteen terms are loaded while these are multiplied, across the ends of stages, too, and the
// copies are interleaved with the products. In other stages missing blocks are skipped.
//
// Terms are rounded up to eight. Where a block has fewer, both operands are padded with zeros:
// `dense` by the copies, the blocks by bsr_pad_blocks.cu, which such a product runs before, as it
// does for blocks whose rows do not begin at multiples of 16 bytes. The rows of a tile beyond a
// block's may hold anything: their outputs are not written.
//
//   -DT, -DOUT, -DEPILOGUE, -DACT   as in bsr_addmm_simt.cu; -DINDEX of the schedule's blocks
//   -DBM, -DBK                      size of a block; its rows lie BK rounded up to eight apart
//   -DGROUP, -DSLICE_M              block rows of a group, and rows of a block that a tile holds
//   -DSTEP_K, -DSTEPS, -DSTAGES
//   -DDENSE=rows|columns            which of its strides is 1
//   -DTILE_N, shared by WARPS_N warps; the tile's rows are shared by WARPS_M, as whole blocks or
//                                   equal parts of blocks
//   -DRESIDENT                      thread blocks that a multiprocessor is to hold
#include "bsr_addmm_groups/warp_mma_swapped.cuh"
#include "common/ceil_div.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/tile_scheduler.cuh"
#include "common/vector16.cuh"

using namespace sparsegpu;

struct Config {
  typedef T Element;
  typedef INDEX Index;
  static constexpr int bm = BM, bk = BK, group_rows = GROUP, slice_m = SLICE_ROWS;
  static constexpr int step_k = STEP_K, steps = STEPS, tile_n = TILE_N;
  static constexpr int warps_m = WARPS_M, warps_n = WARPS_N;
  static constexpr Layout dense_layout = Layout::DENSE;
};
typedef GroupTile<Config> Tile;
typedef Tile::StageBlocks StageBlocks;
typedef WarpMmaSwapped<Tile> Outputs;
static_assert(Outputs::STAGING_BYTES <= STAGES * Tile::STAGE_BYTES, "outputs fit in the stages");

// A stage is one block, or a slice of one: none is missing.
constexpr bool SINGLE_BLOCK = Tile::SLOTS == 1 && STEP_K % 32 == 0;

struct GroupsProblem {
  long long groups, block_rows;  // of one matrix of the pattern
  long long batches;             // matrices of the output
  long long n;
  long long raster_width;  // column tiles of a raster band
  int pattern_batched;     // the pattern has `batches` matrices, or one for all
};

// Where a tile of the output lies. Thread blocks that run at the same time share a few column tiles
// of dense, and within these take the groups with most entries first (longest processing time
// first), so that all finish at about the same time.
struct TilePlace {
  long long group, batch, first_row, first_col;  // first_row: of blocks, within the matrix
  int row_tile;                                  // of the block row

  __device__ __forceinline__ TilePlace(long long tile, const RowGroups<INDEX>& schedule,
                                       const GroupsProblem& problem) {
    const long long groups = problem.groups * (problem.pattern_batched ? problem.batches : 1);
    const long long column_tiles = ceil_div(problem.n, TILE_N);
    row_tile = int(tile % Tile::ROW_TILES);
    tile /= Tile::ROW_TILES;
    const long long matrix = tile / (groups * column_tiles);
    tile -= matrix * groups * column_tiles;
    const BandRaster<long long> raster(tile, column_tiles, groups, problem.raster_width);
    group = schedule.order[raster.column];
    first_col = raster.row * TILE_N;
    batch = problem.pattern_batched ? group / problem.groups : matrix;
    first_row = (problem.pattern_batched ? group % problem.groups : group) * GROUP;
  }
};

extern "C" __global__ void __launch_bounds__(Tile::THREADS, RESIDENT)
    bsr_addmm_groups(const __grid_constant__ View out, const T* data,
                     const __grid_constant__ View dense, const __grid_constant__ Batch batch,
                     const __grid_constant__ RowGroups<INDEX> schedule,
                     const __grid_constant__ GroupsProblem problem,
                     const __grid_constant__ KernelEpilogueArgs<f32> epilogue) {
  extern __shared__ __align__(128) unsigned char stages[];
  const TilePlace tile(blockIdx.x, schedule, problem);
  const long long start = schedule.starts[tile.group];
  const int count = schedule.counts[tile.group];
  const int steps = STEPS == 1 ? count * Tile::SLICES : ceil_div(count, STEPS);
  const int columns = int(min((long long)TILE_N, problem.n - tile.first_col));
  Tile::BlockLoader left(data + (long long)tile.row_tile * SLICE_ROWS * Tile::LENGTH,
                         min(SLICE_ROWS, BM - tile.row_tile * SLICE_ROWS), shared_address(stages));
  Tile::DenseLoader right(batch_ptr<const T>(dense, batch, tile.batch) + tile.first_col * dense.col,
                          dense, columns, shared_address(stages));

  // While one stage is multiplied, the schedule of the next one is prefetched.
  Outputs outputs(stages);
  Tile::ScheduleIterator iterator(schedule, start, count);
  StageBlocks blocks, next;
  unsigned present[STAGES][StageBlocks::WORDS];  // of the stages in flight, the oldest first
  CpAsyncPipeline<STAGES, Tile::STAGE_BYTES> pipeline;
  iterator.read(next);
  auto advance_schedule = [&] {
    blocks = next;
    iterator.advance();
    iterator.read(next);
    blocks.present(present[STAGES - 1], outputs.first_block);
  };
  // A share of the copies; products are computed between the shares.
  auto copy = [&](int share, int shares) {
    right.copy(pipeline.stage, blocks, right.COPIES * share / shares,
               right.COPIES * (share + 1) / shares);
    left.copy(pipeline.stage, blocks, left.COPIES * share / shares,
              left.COPIES * (share + 1) / shares);
  };
  auto shift_stages = [&] {
#pragma unroll
    for (int s = 0; s + 1 < STAGES; ++s)
#pragma unroll
      for (int w = 0; w < StageBlocks::WORDS; ++w) present[s][w] = present[s + 1][w];
  };
#pragma unroll 1
  for (int step = 0; step < STAGES - 1; ++step) {
    advance_schedule();
    copy(0, 1);
    pipeline.advance();
    shift_stages();
  }
  if constexpr (SINGLE_BLOCK) {
    // Fragments of the next sixteen terms are loaded while these are multiplied, across the ends of
    // stages, too. The copies of short stages are not interleaved: they must start at once.
    constexpr int DEPTHS = STEP_K / 16, COPY_SHARES = DEPTHS < 4 ? 1 : DEPTHS;
    Outputs::Depth depths[2];
    pipeline.wait();
    outputs.read(depths[0], 0, pipeline.next);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int d = 0; d < DEPTHS; ++d) {
        if (d + 1 < DEPTHS) outputs.read(depths[(d + 1) % 2], d + 1, pipeline.next);
        if (d == 0) advance_schedule();
        if (d < COPY_SHARES) copy(d, COPY_SHARES);
        if (d + 1 == DEPTHS) {
          pipeline.advance();
          pipeline.wait();
          outputs.read(depths[0], 0, pipeline.next);
        }
        outputs.multiply(depths[d % 2]);
      }
      shift_stages();
    }
  } else {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      pipeline.wait();
      advance_schedule();
      copy(0, 1);
      pipeline.advance();
      outputs.multiply(pipeline.stage, present[0]);
      shift_stages();
    }
  }
  pipeline.drain();

  const KernelEpilogue<f32, OUT> finish(epilogue, batch, tile.batch);
  OUT* matrix = batch_ptr<OUT>(out, batch, tile.batch);
  // The output's row of a tile's row, or -1.
  auto row_of = [&](int m) {
    const int within = tile.row_tile * SLICE_ROWS + m % SLICE_ROWS;
    const long long block_row = tile.first_row + m / SLICE_ROWS;
    return within < BM && block_row < problem.block_rows ? block_row * BM + within : -1;
  };
  auto write_one = [&](int m, int n, f32 sum) {
    const long long r = row_of(m), c = tile.first_col + n;
    if (r >= 0 && n < columns) matrix[element_offset(out, r, c)] = finish(sum, r, c);
  };
  auto write = [&](int m, int n, const f32* sums) {
    const long long r = row_of(m), c = tile.first_col + n;
    if (r < 0) return;
    Vec<OUT, 8> vector;
#pragma unroll
    for (int i = 0; i < 8; ++i) vector.value[i] = finish(sums[i], r, c + i);
    *reinterpret_cast<Vec<OUT, 8>*>(matrix + r * out.row + c) = vector;
  };
  const long long bits = reinterpret_cast<long long>(matrix) | out.row * (long long)sizeof(OUT);
  const bool vectorized = out.col == 1 && bits % sizeof(Vec<OUT, 8>) == 0 && columns == TILE_N;
  outputs.finish(stages, vectorized, out.row < out.col, write, write_one);
}
