// What bsr_addmm_groups.cu brings to shared memory, and where its schedule says that it is.
// Included behind the constants of that source.
#pragma once

constexpr int power_of_two_from(int n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}

// What a stage asks for: lane l knows block l of its slots, and l + 32, and the column of its step
// l. Where the group ends there is no block, and any column will do.
struct Agenda {
  static constexpr int WORDS = (SLOTS + 31) / 32;
  INDEX block[WORDS];
  int column;

  // One bit for every block that is there.
  __device__ __forceinline__ void present(unsigned (&bits)[WORDS]) const {
#pragma unroll
    for (int w = 0; w < WORDS; ++w) bits[w] = __ballot_sync(~0u, block[w] >= 0);
  }
  __device__ __forceinline__ INDEX block_of(int slot) const {
    INDEX found = __shfl_sync(~0u, block[0], slot);
    if constexpr (WORDS == 2) {
      const INDEX other = __shfl_sync(~0u, block[1], slot);
      if (slot >= 32) found = other;
    }
    return found;
  }
  __device__ __forceinline__ int column_of(int step) const {
    return __shfl_sync(~0u, column, step);
  }
};

// The schedule of a group, stage by stage.
struct Walk {
  const INDEX* blocks;  // of this lane
  const int* columns;
  int entries, slice;  // left of the group; of the entry (STEPS == 1)

  __device__ __forceinline__ Walk(const Groups& schedule, long long start, int count)
      : blocks(schedule.blocks + start * GROUP + threadIdx.x % 32),
        columns(schedule.columns + start + threadIdx.x % 32),
        entries(count),
        slice(0) {}

  __device__ __forceinline__ void read(Agenda& agenda) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int w = 0; w < Agenda::WORDS; ++w) {
      const int slot = 32 * w + lane;
      agenda.block[w] = slot < SLOTS && slot / GROUP < entries ? blocks[32 * w] : -1;
    }
    agenda.column = lane < STEPS && lane < entries ? *columns : 0;
  }
  __device__ __forceinline__ void advance() {
    if (STEPS == 1 && ++slice < SLICES) return;
    slice = 0;
    entries -= STEPS;
    blocks += SLOTS;
    columns += STEPS;
  }
};

// A thread's share of the copies of blocks: lines and 16-byte pieces of a slot are counted in
// powers of two, and so are the threads, so that all of it is known at the start of the tile.
struct Left {
  static constexpr int PIECES = STEP_K / 8;
  static constexpr int ACROSS = power_of_two_from(PIECES);
  static constexpr int SLOT_COPIES = ACROSS * power_of_two_from(SLICE_M);
  static constexpr int AT_ONCE = SLOT_COPIES < THREADS ? THREADS / SLOT_COPIES : 1;  // slots
  static constexpr int DOWN = THREADS / AT_ONCE / ACROSS;                            // lines

  const T* from;  // of block 0
  unsigned to;
  int slot, rows, terms;  // rows and terms: of the block, from this thread's first on

  __device__ __forceinline__ Left(const T* block, int rows_here, unsigned stages) {
    const int within = threadIdx.x % (THREADS / AT_ONCE);
    const int m = within / ACROSS, piece = within % ACROSS;
    slot = AT_ONCE == 1 ? 0 : threadIdx.x / (THREADS / AT_ONCE);
    from = block + m * LENGTH + piece * 8;
    to = stages + (slot * SLICE_M + m) * LEFT_PITCH + piece * 16;
    rows = piece < PIECES ? rows_here - m : 0;
    terms = LENGTH - piece * 8;
  }

  __device__ __forceinline__ void load(unsigned stage, const Agenda& agenda, int slice) const {
#pragma unroll
    for (int s = 0; s < SLOTS; s += AT_ONCE) {
      const INDEX p = agenda.block_of(slot + s);
      const T* block = from + (long long)p * (BM * LENGTH) + slice * STEP_K;
#pragma unroll
      for (int m = 0; m < SLICE_M; m += DOWN)
        if (p >= 0 && m < rows && (SLOTS % AT_ONCE == 0 || slot + s < SLOTS))
          cp_async<16>(to + stage + (s * SLICE_M + m) * LEFT_PITCH, block + m * LENGTH,
                       SLICES * STEP_K == LENGTH || slice * STEP_K < terms);
    }
  }
};

// A thread's share of the copies of dense, by row ... They go through L1: what goes past it was
// measured to cost the L2 half as many bytes again.
struct RightRows {
  static constexpr int PIECES = TILE_N / 8;
  static constexpr int DOWN = THREADS / PIECES;
  static_assert(THREADS % PIECES == 0 && STEP_K % DOWN == 0, "whole rows of threads");

  const T* from;  // of block column 0
  unsigned to;
  long long entry, row;  // elements from an entry to the next, from a row to the next
  int k, columns;        // this thread's first row; what is left of the columns from its first on

  __device__ __forceinline__ RightRows(const T* panel, const View& dense, int columns_here,
                                       unsigned stages) {
    const int n = threadIdx.x % PIECES * 8;
    k = threadIdx.x / PIECES;
    from = panel + k * dense.row + n;
    to = stages + LEFT_BYTES + k * RIGHT_PITCH + n * 2;
    entry = BK * dense.row;
    row = dense.row;
    columns = columns_here - n;
  }

  __device__ __forceinline__ void load(unsigned stage, const Agenda& agenda, int slice) const {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      const T* first = from + agenda.column_of(step) * entry + slice * STEP_K * row;
      const unsigned into = to + stage + step * STEP_K * RIGHT_PITCH;
#pragma unroll
      for (int i = 0; i < STEP_K; i += DOWN)
        if (columns >= 8)
          cp_async<16, true>(into + i * RIGHT_PITCH, first + i * row, exists(slice, i));
      if (columns > 0 && columns < 8)
#pragma unroll 1
        for (int i = 0; i < STEP_K; i += DOWN)
          cp_async_partial<16>(into + i * RIGHT_PITCH, first + i * row,
                               exists(slice, i) ? columns * 2 : 0);
    }
  }
  __device__ __forceinline__ bool exists(int slice, int i) const {
    return SLICES * STEP_K == BK || slice * STEP_K + k + i < BK;
  }
};

// ... or by column.
struct RightColumns {
  static constexpr int PIECES = STEPS * STEP_K / 8;
  static constexpr int ACROSS = power_of_two_from(PIECES);
  static constexpr int DOWN = THREADS / ACROSS;

  const T* from;
  unsigned to;
  long long col;
  int step, k, columns;

  __device__ __forceinline__ RightColumns(const T* panel, const View& dense, int columns_here,
                                          unsigned stages) {
    const int n = threadIdx.x / ACROSS, piece = threadIdx.x % ACROSS;
    step = piece < PIECES ? piece * 8 / STEP_K : 0;
    k = piece * 8 - step * STEP_K;
    from = panel + n * dense.col + k;
    to = stages + LEFT_BYTES + n * RIGHT_PITCH + piece * 16;
    col = dense.col;
    columns = piece < PIECES ? columns_here - n : 0;
  }

  __device__ __forceinline__ void load(unsigned stage, const Agenda& agenda, int slice) const {
    const T* first = from + (long long)agenda.column_of(step) * BK + slice * STEP_K;
    const bool exists = SLICES * STEP_K == BK || slice * STEP_K + k < BK;
#pragma unroll
    for (int n = 0; n < TILE_N; n += DOWN)
      if (n < columns) cp_async<16, true>(to + stage + n * RIGHT_PITCH, first + n * col, exists);
  }
};

template <bool ROWS_OF_DENSE>
struct RightOf {
  typedef RightRows Type;
};
template <>
struct RightOf<false> {
  typedef RightColumns Type;
};
