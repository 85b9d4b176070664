// What bsr_addmm_groups.cu brings to shared memory, and where its schedule says that it is.
// Included behind the constants of that source.
#pragma once

namespace sparsegpu {

constexpr int power_of_two_from(int n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}

// A value that the compiler must not compute anew wherever it is used: it cannot know that the
// shuffle moves nothing.
__device__ __forceinline__ unsigned kept(unsigned value) {
  return __shfl_xor_sync(~0u, value, 0);
}
__device__ __forceinline__ const T* kept(const T* from) {
  return reinterpret_cast<const T*>(
      __shfl_xor_sync(~0u, reinterpret_cast<unsigned long long>(from), 0));
}

// What a stage asks for: lane l knows block l of its slots, and l + 32, and the column of its step
// l. Where the group ends there is no block, and any column will do.
struct Agenda {
  static constexpr int WORDS = (SLOTS + 31) / 32;
  INDEX block[WORDS];
  int column, slice, entries;  // slice: of the entry (STEPS == 1); entries: from here on

  // One bit for every block that is there, from `first` on.
  __device__ __forceinline__ void present(unsigned (&bits)[WORDS], unsigned first) const {
#pragma unroll
    for (int w = 0; w < WORDS; ++w) bits[w] = __ballot_sync(~0u, block[w] >= 0);
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
      bits[w] = __funnelshift_r(bits[w], w + 1 < WORDS ? bits[w + 1] : 0, first);
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

  __device__ __forceinline__ Walk(const RowGroups<INDEX>& schedule, long long start, int count)
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
    agenda.slice = slice;
    agenda.entries = entries;
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
  static constexpr int OF_SLOT = (SLICE_M + DOWN - 1) / DOWN;                        // copies
  static constexpr int COPIES = (SLOTS + AT_ONCE - 1) / AT_ONCE * OF_SLOT;
  static_assert(DOWN % 8 == 0, "all lines of a thread are turned alike");

  const T* from;  // of block 0
  unsigned to;
  int slot, rows, terms;  // rows and terms: of the block, from this thread's first on

  const T* block;  // what is being copied, where to, and whether it is there
  unsigned into;
  bool there, exists;

  __device__ __forceinline__ Left(const T* block, int rows_here, unsigned stages) {
    const int within = threadIdx.x % (THREADS / AT_ONCE);
    const int m = within / ACROSS, piece = within % ACROSS;
    slot = AT_ONCE == 1 ? 0 : threadIdx.x / (THREADS / AT_ONCE);
    from = kept(block + m * LENGTH + piece * 8);
    to = kept(stages + LeftLines::place(slot * SLICE_M + m, piece));
    rows = piece < PIECES ? rows_here - m : 0;
    terms = LENGTH - piece * 8;
  }

  // Copies first .. last - 1 of a stage.
  __device__ __forceinline__ void copy(unsigned stage, const Agenda& agenda, int first, int last) {
#pragma unroll
    for (int i = first; i < last; ++i) {
      const int m = i % OF_SLOT * DOWN;
      if (m == 0) begin(stage, agenda, i / OF_SLOT * AT_ONCE);
      if (there && m < rows) cp_async<16>(into + m * LEFT_PITCH, block + m * LENGTH, exists);
    }
  }
  // Turn to slot s.
  __device__ __forceinline__ void begin(unsigned stage, const Agenda& agenda, int s) {
    const INDEX p = agenda.block_of(slot + s);
    block = from + (long long)p * (BM * LENGTH) + agenda.slice * STEP_K;
    into = to + stage + s * SLICE_M * LEFT_PITCH;
    there = p >= 0 && (SLOTS % AT_ONCE == 0 || slot + s < SLOTS);
    exists = SLICES * STEP_K == LENGTH || agenda.slice * STEP_K < terms;
  }
};

// A thread's share of the copies of dense, by row ...
struct RightRows {
  static constexpr int PIECES = TILE_N / 8;
  static constexpr int COPIES = STEPS * STEP_K / (THREADS / PIECES);  // rows: neighbours
  static constexpr int OF_ENTRY = COPIES < STEP_K ? COPIES : STEP_K;
  static_assert(THREADS % PIECES == 0, "whole rows of threads");
  static_assert(COPIES * (THREADS / PIECES) == STEPS * STEP_K, "the same for all threads");
  static_assert(STEP_K % OF_ENTRY == 0 && COPIES % OF_ENTRY == 0, "whole entries, or parts");

  const T* from;  // of block column 0
  unsigned to;
  long long entry, row;  // elements from an entry to the next, from a row to the next
  int first_row;
  bool within;  // the matrix

  const T* source;  // what is being copied, where to, whether it is there, and how far it goes
  unsigned into;
  bool there;
  int rows;

  __device__ __forceinline__ RightRows(const T* panel, const View& dense, int columns,
                                       unsigned stages) {
    const int n = threadIdx.x % PIECES * 8;
    first_row = threadIdx.x / PIECES * COPIES;
    from = kept(panel + first_row % STEP_K * dense.row + n);
    to = kept(stages + LEFT_BYTES + RightLines::place(first_row, n / 8));
    entry = BK * dense.row;
    row = dense.row;
    within = n < columns;
  }

  __device__ __forceinline__ void copy(unsigned stage, const Agenda& agenda, int first, int last) {
    const int t = is_power_of_two(COPIES) ? 0 : first_row;  // else the turns come one by one
#pragma unroll
    for (int i = first; i < last; ++i) {
      if (i % OF_ENTRY == 0) begin(stage, agenda, i);
      if (there)
        cp_async<16>((into ^ ((t + i) % 8 ^ t % 8) * 16) + i * RIGHT_PITCH,
                     source + i % OF_ENTRY * row, SLICES * STEP_K == BK || i % OF_ENTRY < rows);
    }
  }
  // Turn to the entry of this thread's row r.
  __device__ __forceinline__ void begin(unsigned stage, const Agenda& agenda, int r) {
    const int step = (first_row + r) / STEP_K;
    source = from + agenda.column_of(step) * entry + agenda.slice * STEP_K * row;
    into = to + stage;
    there = within && step < agenda.entries;
    rows = BK - agenda.slice * STEP_K - first_row % STEP_K;
  }
};

// ... or by column.
struct RightColumns {
  static constexpr int PIECES = STEPS * STEP_K / 8;
  static constexpr int ACROSS = power_of_two_from(PIECES);
  static constexpr int DOWN = THREADS / ACROSS;
  static constexpr int COPIES = TILE_N / DOWN;

  const T* from;
  unsigned to;
  long long col;
  int step, k, columns;

  const T* source;
  unsigned into;
  bool there, exists;

  __device__ __forceinline__ RightColumns(const T* panel, const View& dense, int columns_here,
                                          unsigned stages) {
    const int n = threadIdx.x / ACROSS, piece = threadIdx.x % ACROSS;
    step = piece < PIECES ? piece * 8 / STEP_K : 0;
    k = piece * 8 - step * STEP_K;
    from = kept(panel + n * dense.col + k);
    to = kept(stages + LEFT_BYTES + RightLines::place(n, piece));
    col = dense.col;
    columns = piece < PIECES ? columns_here - n : 0;
  }

  __device__ __forceinline__ void copy(unsigned stage, const Agenda& agenda, int first, int last) {
    if (first == 0) begin(stage, agenda);
#pragma unroll
    for (int i = first; i < last; ++i)
      if (there && i * DOWN < columns)
        cp_async<16>(into + i * DOWN * RIGHT_PITCH, source + i * DOWN * col, exists);
  }
  __device__ __forceinline__ void begin(unsigned stage, const Agenda& agenda) {
    source = from + (long long)agenda.column_of(step) * BK + agenda.slice * STEP_K;
    into = to + stage;
    there = step < agenda.entries;
    exists = SLICES * STEP_K == BK || agenda.slice * STEP_K + k < BK;
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

}  // namespace sparsegpu
