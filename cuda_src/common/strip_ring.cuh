// Tiles of attention that thread blocks copy by cp.async: panels of rows in shared memory, and what
// is known of the strips (common/query_tile.cuh) that a tile consists of.
#pragma once

#include "common/attention_tile.cuh"
#include "common/query_tile.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/cp_async.cuh"

namespace sparsegpu {

// Rows of COLUMNS elements E in shared memory, in panels.
template <typename E, int LINES, int COLUMNS>
struct Panels {
  typedef E Element;
  static constexpr int SIZE = sizeof(E);
  static constexpr int PITCH = COLUMNS * SIZE % 128 == 0 ? 128 : 64;  // bytes of a panel's row
  static constexpr int PANEL = PITCH / SIZE;
  static constexpr int BYTES = LINES * COLUMNS * SIZE;
  static constexpr int LENGTH = LINES, WIDTH = COLUMNS;
  static __device__ __forceinline__ unsigned address(unsigned base, int line, int column) {
    return swizzled_address<PITCH>(base + column / PANEL * (LINES * PITCH), line,
                                   column % PANEL * SIZE);
  }
  // The address that is `lines` (a multiple of 8) and `columns` (of 32 bytes) further on than that
  // of a line below 8 and a column below 32 bytes, or lines and columns that are such multiples
  // besides.
  static __device__ __forceinline__ unsigned advance(unsigned from, int lines, int columns) {
    return (from ^ columns % PANEL * SIZE) + (columns / PANEL * LINES + lines) * PITCH;
  }
};

// What is known of the strips of a tile of keys, in a ring: it is read two tiles ahead.
template <typename Index, int STRIPS_OF_TILE, int ROWS_OF_TILE>
struct StripRing {
  typedef Index Number;
  static constexpr int SLOTS = 3, STRIPS = STRIPS_OF_TILE, ROWS = ROWS_OF_TILE;
  int key[SLOTS][STRIPS];  // the first of the strip; negative: there is none
  Index state[SLOTS][ROWS][STRIPS];
};

// The strips of tile `number` in a ring.
template <typename Strips, typename Ring>
struct StripTile {
  static constexpr int STRIPS = Ring::STRIPS;
  const Ring& ring;
  int number;

  __device__ __forceinline__ StripTile(const Ring& ring, int number) : ring(ring), number(number) {}

  // Where a line of the tile lies in a matrix, null where it has no key: a function of the line.
  template <typename E>
  __device__ __forceinline__ auto lines(const E* base, long long row) const {
    const int (&first)[STRIPS] = ring.key[number % Ring::SLOTS];
    return [&first, base, row, tile = number](int line) -> const E* {
      const int strip = line / 8;
      const bool here = first[strip] >= 0 && (Strips::COLUMNS % 8 == 0 ||
                                              line % 8 < Strips::width(tile * STRIPS + strip));
      return here ? base + (long long)(first[strip] + line % 8) * row : nullptr;
    };
  }
  // Strip j for the two rows of a lane.
  template <typename Rows>
  __device__ __forceinline__ Strip<typename Ring::Number> strip(int j, const Rows& rows) const {
    const int slot = number % Ring::SLOTS;
    return {{ring.state[slot][rows.block_row[0]][j], ring.state[slot][rows.block_row[1]][j]},
            ring.key[slot][j],
            Strips::column(number * STRIPS + j)};
  }
};

// A thread's part of the ring: a strip of a block row.
template <typename Strips, typename Ring>
struct StripReader {
  typedef typename Ring::Number Index;
  static constexpr int STRIPS = Ring::STRIPS, ROWS = Ring::ROWS;
  const RowGroups<Index>& schedule;
  const Index* states;
  long long start;
  int strips;  // of the group
  int strip = threadIdx.x % STRIPS, row = threadIdx.x / STRIPS;
  Index state;
  int key;

  __device__ __forceinline__ StripReader(const RowGroups<Index>& schedule, const Index* states,
                                         long long group)
      : schedule(schedule),
        states(states),
        start(schedule.starts[group]),
        strips(schedule.counts[group] * Strips::EACH) {}

  __device__ __forceinline__ void read(int tile) {
    const int s = tile * STRIPS + strip;
    const bool here = row < ROWS && s < strips;
    const long long entry = start + Strips::entry(s);
    state = here ? states[entry * ROWS + row] : Index(NOT_STORED);
    key = here && row == 0 ? schedule.columns[entry] * Strips::COLUMNS + Strips::column(s) : -1;
  }
  __device__ __forceinline__ void store(Ring& ring, int tile) const {
    if (row < ROWS) ring.state[tile % Ring::SLOTS][row][strip] = state;
    if (row == 0) ring.key[tile % Ring::SLOTS][strip] = key;
  }
  // Store the strips of the first two tiles, and read those of the third.
  __device__ __forceinline__ void begin(Ring& ring) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      read(tile);
      store(ring, tile);
    }
    read(2);
  }
};

// Copy a tile's lines to panels: `line(i)` says where line i lies (null: zeros), of whose columns
// there are `columns`.
template <typename PANELS, int THREADS, typename Line>
__device__ __forceinline__ void copy_lines(unsigned to, int columns, Line line) {
  constexpr int LINES = PANELS::LENGTH, COLUMNS = PANELS::WIDTH, PANEL = PANELS::PANEL;
  constexpr int ACROSS = PANELS::PITCH / 16, DOWN = THREADS / ACROSS;
  static_assert(DOWN % 8 == 0, "as PANELS::advance goes");
  const int first = threadIdx.x / ACROSS, column = threadIdx.x % ACROSS * (16 / PANELS::SIZE);
  const unsigned lane = to + PANELS::address(0, first, column);
#pragma unroll
  for (int i = 0; i < LINES; i += DOWN) {
    if (LINES % DOWN != 0 && first + i >= LINES) break;
    const auto* from = line(first + i);
#pragma unroll
    for (int c = 0; c < COLUMNS; c += PANEL)
      cp_async<16>(lane + PANELS::advance(0, i, c), from + column + c,
                   from != nullptr && column + c < columns);
  }
}

}  // namespace sparsegpu
