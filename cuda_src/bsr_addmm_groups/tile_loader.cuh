// What bsr_addmm_groups.cu copies to shared memory, and where its schedule says that it lies.
#pragma once

#include "common/ceil_div.cuh"
#include "common/cp_async_pipeline.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp_mma.cuh"

namespace sparsegpu {

constexpr int power_of_two_from(int n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}

// A value that the compiler must not recompute wherever it is used: it cannot know that the shuffle
// moves nothing.
__device__ __forceinline__ unsigned computed_once(unsigned value) {
  return __shfl_xor_sync(~0u, value, 0);
}
template <typename E>
__device__ __forceinline__ const E* computed_once(const E* from) {
  return reinterpret_cast<const E*>(
      __shfl_xor_sync(~0u, reinterpret_cast<unsigned long long>(from), 0));
}

// A tile of a product of row groups, its stages and what loads them.
//
// `Config` has the types Element and Index; bm, bk (the block); group_rows, slice_m (block rows of
// a group, and rows of a block that a tile holds); step_k, steps; tile_n; warps_m, warps_n;
// dense_layout.
template <typename Config>
struct GroupTile {
  typedef typename Config::Element Element;
  typedef typename Config::Index Index;
  static constexpr int bm = Config::bm, bk = Config::bk, tile_n = Config::tile_n;
  static constexpr int group_rows = Config::group_rows, slice_m = Config::slice_m;
  static constexpr int step_k = Config::step_k, steps = Config::steps;
  static constexpr int warps_n = Config::warps_n;

  static constexpr bool BY_ROW = Config::dense_layout == Layout::rows;
  static constexpr int THREADS = 32 * Config::warps_m * warps_n;
  static constexpr int TILE_M = group_rows * slice_m;
  static constexpr int WARP_M = TILE_M / Config::warps_m, WARP_N = tile_n / warps_n;
  static constexpr int ROW_TILES = ceil_div(bm, slice_m);  // of a block row
  static constexpr int LENGTH = ceil_div(bk, 8) * 8;       // of a block's row as it lies
  static constexpr int SLICES = ceil_div(bk, step_k);      // of an entry
  static constexpr int SLOTS = steps * group_rows;         // blocks of a stage
  static_assert(slice_m % 8 == 0 && step_k % 8 == 0 && WARP_N % 16 == 0, "whole fragments");
  static_assert(TILE_M % (8 * Config::warps_m) == 0, "whole fragments of each warp");
  static_assert(WARP_M % slice_m == 0 || slice_m % WARP_M == 0, "whole blocks, or equal parts");
  static_assert(is_power_of_two(tile_n) && is_power_of_two(WARP_N), "powers of two");
  static_assert(steps == 1 || SLICES == 1, "a stage holds entries, or a slice of one");
  static_assert(SLOTS <= 64, "two words tell which blocks are there");

  typedef SwizzledTile<step_k / 8> LeftLayout;
  typedef SwizzledTile<(BY_ROW ? tile_n : steps * step_k) / 8> RightLayout;
  static constexpr int LEFT_PITCH = LeftLayout::PITCH, RIGHT_PITCH = RightLayout::PITCH;
  static constexpr int LEFT_BYTES = SLOTS * slice_m * LEFT_PITCH;
  static constexpr int STAGE_BYTES = LEFT_BYTES + (BY_ROW ? steps * step_k : tile_n) * RIGHT_PITCH;
  static_assert(LEFT_BYTES % 128 == 0 && STAGE_BYTES % 128 == 0, "all begin in the first bank");

  // The blocks and columns of a stage: lane l holds block l of its slots, and l + 32, and the
  // column of its step l. Behind the end of the group there is no block, and the column is of no
  // matter.
  struct StageBlocks {
    static constexpr int WORDS = ceil_div(SLOTS, 32);
    Index block[WORDS];
    int column, slice, entries;  // slice: of the entry (steps == 1); entries: left in the group

    // One bit for every block that is stored, from `first` on.
    __device__ __forceinline__ void present(unsigned (&bits)[WORDS], unsigned first) const {
#pragma unroll
      for (int w = 0; w < WORDS; ++w) bits[w] = __ballot_sync(~0u, block[w] >= 0);
#pragma unroll
      for (int w = 0; w < WORDS; ++w)
        bits[w] = __funnelshift_r(bits[w], w + 1 < WORDS ? bits[w + 1] : 0, first);
    }
    __device__ __forceinline__ Index block_of(int slot) const {
      Index found = __shfl_sync(~0u, block[0], slot);
      if constexpr (WORDS == 2) {
        const Index other = __shfl_sync(~0u, block[1], slot);
        if (slot >= 32) found = other;
      }
      return found;
    }
    __device__ __forceinline__ int column_of(int step) const {
      return __shfl_sync(~0u, column, step);
    }
  };

  // The schedule of a group, stage by stage.
  struct ScheduleIterator {
    const Index* blocks;  // of this lane
    const int* columns;
    int entries, slice;  // left of the group; of the entry (steps == 1)

    template <typename Schedule>
    __device__ __forceinline__ ScheduleIterator(const Schedule& schedule, long long start,
                                                int count)
        : blocks(schedule.blocks + start * group_rows + threadIdx.x % 32),
          columns(schedule.columns + start + threadIdx.x % 32),
          entries(count),
          slice(0) {}

    __device__ __forceinline__ void read(StageBlocks& stage_blocks) const {
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int w = 0; w < StageBlocks::WORDS; ++w) {
        const int slot = 32 * w + lane;
        stage_blocks.block[w] = slot < SLOTS && slot / group_rows < entries ? blocks[32 * w] : -1;
      }
      stage_blocks.slice = slice;
      stage_blocks.entries = entries;
      stage_blocks.column = lane < steps && lane < entries ? *columns : 0;
    }
    __device__ __forceinline__ void advance() {
      if (steps == 1 && ++slice < SLICES) return;
      slice = 0;
      entries -= steps;
      blocks += SLOTS;
      columns += steps;
    }
  };

  // A thread's share of the copies of blocks: lines and 16-byte vectors of a slot are rounded up to
  // powers of two, and the threads are a power of two, so that all of it is computed once a tile.
  struct BlockLoader {
    static constexpr int VECTORS = step_k / 8;
    static constexpr int ACROSS = power_of_two_from(VECTORS);
    static constexpr int SLOT_COPIES = ACROSS * power_of_two_from(slice_m);
    static constexpr int SLOTS_AT_ONCE =
        SLOT_COPIES < THREADS ? THREADS / SLOT_COPIES : 1;         // slots
    static constexpr int DOWN = THREADS / SLOTS_AT_ONCE / ACROSS;  // lines
    static constexpr int OF_SLOT = ceil_div(slice_m, DOWN);        // copies
    static constexpr int COPIES = ceil_div(SLOTS, SLOTS_AT_ONCE) * OF_SLOT;
    static_assert(DOWN % 8 == 0, "all lines of a thread have one swizzle");

    const Element* from;  // of block 0
    unsigned to;
    int slot, rows, terms;  // rows and terms: of the block, from this thread's first on

    const Element* block;  // what is being copied, where to, and whether it is there
    unsigned into;
    bool there, exists;

    __device__ __forceinline__ BlockLoader(const Element* block, int rows_here, unsigned stages) {
      const int within = threadIdx.x % (THREADS / SLOTS_AT_ONCE);
      const int m = within / ACROSS, vector = within % ACROSS;
      slot = SLOTS_AT_ONCE == 1 ? 0 : threadIdx.x / (THREADS / SLOTS_AT_ONCE);
      from = computed_once(block + m * LENGTH + vector * 8);
      to = computed_once(stages + LeftLayout::offset(slot * slice_m + m, vector));
      rows = vector < VECTORS ? rows_here - m : 0;
      terms = LENGTH - vector * 8;
    }

    // Copies first .. last - 1 of a stage.
    __device__ __forceinline__ void copy(unsigned stage, const StageBlocks& stage_blocks, int first,
                                         int last) {
#pragma unroll
      for (int i = first; i < last; ++i) {
        const int m = i % OF_SLOT * DOWN;
        if (m == 0) begin(stage, stage_blocks, i / OF_SLOT * SLOTS_AT_ONCE);
        if (there && m < rows) cp_async<16>(into + m * LEFT_PITCH, block + m * LENGTH, exists);
      }
    }
    // Begin with slot s.
    __device__ __forceinline__ void begin(unsigned stage, const StageBlocks& stage_blocks, int s) {
      const Index p = stage_blocks.block_of(slot + s);
      block = from + (long long)p * (bm * LENGTH) + stage_blocks.slice * step_k;
      into = to + stage + s * slice_m * LEFT_PITCH;
      there = p >= 0 && (SLOTS % SLOTS_AT_ONCE == 0 || slot + s < SLOTS);
      exists = SLICES * step_k == LENGTH || stage_blocks.slice * step_k < terms;
    }
  };

  // A thread's share of the copies of dense: of its rows ...
  struct DenseRowLoader {
    static constexpr int VECTORS = tile_n / 8;
    static constexpr int COPIES = steps * step_k / (THREADS / VECTORS);  // rows: neighbours
    static constexpr int OF_ENTRY = COPIES < step_k ? COPIES : step_k;
    static_assert(THREADS % VECTORS == 0, "whole rows of threads");
    static_assert(COPIES * (THREADS / VECTORS) == steps * step_k, "the same for all threads");
    static_assert(step_k % OF_ENTRY == 0 && COPIES % OF_ENTRY == 0, "whole entries, or parts");

    const Element* from;  // of block column 0
    unsigned to;
    long long entry, row;  // elements from an entry to the next, from a row to the next
    int first_row;
    bool within;  // the matrix

    // What is copied, where to, whether it is within the matrix, and its rows.
    const Element* source;
    unsigned into;
    bool there;
    int rows;

    __device__ __forceinline__ DenseRowLoader(const Element* panel, const View& dense, int columns,
                                              unsigned stages) {
      const int n = threadIdx.x % VECTORS * 8;
      first_row = threadIdx.x / VECTORS * COPIES;
      from = computed_once(panel + first_row % step_k * dense.row + n);
      to = computed_once(stages + LEFT_BYTES + RightLayout::offset(first_row, n / 8));
      entry = bk * dense.row;
      row = dense.row;
      within = n < columns;
    }

    __device__ __forceinline__ void copy(unsigned stage, const StageBlocks& stage_blocks, int first,
                                         int last) {
      // The swizzle of a copy follows from the first one's, except where rows are no power of two.
      const int t = is_power_of_two(COPIES) ? 0 : first_row;
#pragma unroll
      for (int i = first; i < last; ++i) {
        if (i % OF_ENTRY == 0) begin(stage, stage_blocks, i);
        if (there)
          cp_async<16>((into ^ ((t + i) % 8 ^ t % 8) * 16) + i * RIGHT_PITCH,
                       source + i % OF_ENTRY * row, SLICES * step_k == bk || i % OF_ENTRY < rows);
      }
    }
    // Begin with the entry of this thread's row r.
    __device__ __forceinline__ void begin(unsigned stage, const StageBlocks& stage_blocks, int r) {
      const int step = (first_row + r) / step_k;
      source = from + stage_blocks.column_of(step) * entry + stage_blocks.slice * step_k * row;
      into = to + stage;
      there = within && step < stage_blocks.entries;
      rows = bk - stage_blocks.slice * step_k - first_row % step_k;
    }
  };

  // ... or of its columns.
  struct DenseColumnLoader {
    static constexpr int VECTORS = steps * step_k / 8;
    static constexpr int ACROSS = power_of_two_from(VECTORS);
    static constexpr int DOWN = THREADS / ACROSS;
    static constexpr int COPIES = tile_n / DOWN;

    const Element* from;
    unsigned to;
    long long col;
    int step, k, columns;

    const Element* source;
    unsigned into;
    bool there, exists;

    __device__ __forceinline__ DenseColumnLoader(const Element* panel, const View& dense,
                                                 int columns_here, unsigned stages) {
      const int n = threadIdx.x / ACROSS, vector = threadIdx.x % ACROSS;
      step = vector < VECTORS ? vector * 8 / step_k : 0;
      k = vector * 8 - step * step_k;
      from = computed_once(panel + n * dense.col + k);
      to = computed_once(stages + LEFT_BYTES + RightLayout::offset(n, vector));
      col = dense.col;
      columns = vector < VECTORS ? columns_here - n : 0;
    }

    __device__ __forceinline__ void copy(unsigned stage, const StageBlocks& stage_blocks, int first,
                                         int last) {
      if (first == 0) begin(stage, stage_blocks);
#pragma unroll
      for (int i = first; i < last; ++i)
        if (there && i * DOWN < columns)
          cp_async<16>(into + i * DOWN * RIGHT_PITCH, source + i * DOWN * col, exists);
    }
    __device__ __forceinline__ void begin(unsigned stage, const StageBlocks& stage_blocks) {
      source = from + (long long)stage_blocks.column_of(step) * bk + stage_blocks.slice * step_k;
      into = to + stage;
      there = step < stage_blocks.entries;
      exists = SLICES * step_k == bk || stage_blocks.slice * step_k + k < bk;
    }
  };

  typedef typename Conditional<BY_ROW, DenseRowLoader, DenseColumnLoader>::type DenseLoader;
};

}  // namespace sparsegpu
