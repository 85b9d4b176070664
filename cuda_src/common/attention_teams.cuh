// The work of the teams of attention's kernels for Hopper: which tiles a team takes, what its
// producer reads of their schedules, and how it tells the consumers. A team is one or two consumer
// warpgroups that share a tile, and a producer warp.
#pragma once

#include "common/ceil_div.cuh"
#include "common/query_tile.cuh"
#include "common/raster.cuh"

namespace sparsegpu {

// Walks the tiles that a team takes, one after the other. Those of a band of heads that take turns,
// or of all heads, are dealt out to all teams, in a zigzag, and beginning with the team that would
// be next after the heads before.
template <int Teams, int Slices>
struct TeamTiles {
  int team, round = 0;

  __device__ __forceinline__ TeamTiles(int team) : team(team) {}

  // The next tile; behind the last one, a negative number.
  __device__ __forceinline__ TileNumber next(const AttentionProblem& problem) {
    const int teams = gridDim.x * Teams, each = int(problem.groups) * Slices;
    const int heads = problem.band > 1 ? problem.band : problem.heads;  // that are dealt out next
    const int rounds = ceil_div(heads * each, teams);
    while (true) {
      const int first_head = round / rounds * heads, of_heads = round % rounds;
      if (first_head >= problem.heads) return {0, -1};
      ++round;
      const int first = first_head * each, end = min(first_head + heads, problem.heads) * each;
      const int taker = (team * gridDim.x + blockIdx.x + teams - first % teams) % teams;
      const int place = first + of_heads * teams + zigzag(of_heads, taker, teams);
      if (place < end) return tile_in_order<Slices>(place, problem);
    }
  }
};

// What a lane knows of a stage: the state of one block; of its entry, the first row, and where that
// is in its block, if a stage is a slice.
template <typename Index>
struct StageEntry {
  Index state;
  int slice, first;
};

// Reads the schedule of a tile ahead: a lane holds the state of one block of a stage. A stage has
// Entries entries of a group of Rows block rows, or one of Slices slices of an entry; of each entry
// it has Each rows.
template <typename Index, int Entries, int Rows, int Slices, int Each>
struct StageReader {
  const RowGroups<Index>& schedule;
  const Index* states;
  long long start;
  int entries;
  Index state;
  int column;  // block column of the lane's entry

  __device__ __forceinline__ StageReader(const RowGroups<Index>& schedule, const Index* states,
                                         long long group)
      : schedule(schedule),
        states(states),
        start(schedule.starts[group]),
        entries(schedule.counts[group]) {
    if (entries > 0) read(0);
  }
  __device__ __forceinline__ int stages() const { return ceil_div(entries, Entries) * Slices; }
  // What stage `number` of `count` holds; the next one is read.
  __device__ __forceinline__ StageEntry<Index> take(int number, int count) {
    const Index of_stage = state;
    const int slice = number % Slices * Each, first = column * (Slices * Each) + slice;
    if (number + 1 < count) read(number + 1);
    return {of_stage, slice, first};
  }
  __device__ __forceinline__ void read(int stage) {
    const int lane = threadIdx.x % 32, e = stage / Slices * Entries + lane / Rows;
    const long long entry = start + min(e, entries - 1);  // the last one again, where none is left
    column = schedule.columns[entry];
    state = e < entries && lane < Entries * Rows ? states[entry * Rows + lane % Rows]
                                                 : Index(NOT_STORED);
  }
};

// Tell the consumers what a stage will hold, as all lanes of the producer do.
template <int Entries, int Rows, typename Memory, typename Index>
__device__ __forceinline__ void announce(Memory& shared, int stage, int lane, Index state,
                                         int first, int slice) {
  if (lane < Entries * Rows) shared.state[stage][lane / Rows][lane % Rows] = state;
  if (lane < Entries * Rows && lane % Rows == 0) shared.first[stage][lane / Rows] = first;
  if (lane == 0) shared.column[stage] = slice;
}

}  // namespace sparsegpu
