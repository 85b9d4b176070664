// The work of the teams of attention's kernels for Hopper: which tiles a team takes, what its
// producer reads of their schedules, and how it tells the consumers. A team is one or two consumer
// warpgroups that share a tile, and a producer warp.
#pragma once

#include "common/ceil_div.cuh"
#include "common/query_tile.cuh"
#include "ptx/opaque.cuh"

namespace sparsegpu {

// Walks the tiles that a team takes, one after the other. Those of some heads at a time are dealt
// out to all teams: every other round backwards, so that no team has the longest of every round,
// and beginning with the team that would be next after the heads before.
template <int Teams, int Slices>
struct TeamTiles {
  int team, round = 0;

  __device__ __forceinline__ TeamTiles(int team) : team(team) {}

  // The next tile; behind the last one, a negative number.
  __device__ __forceinline__ TileNumber next(const AttentionProblem& problem) {
    const int teams = all(), each = int(problem.groups) * Slices;
    const int rounds = ceil_div(each * problem.together, teams);
    while (true) {
      const int first_head = round / rounds * problem.together, of_heads = round % rounds;
      if (first_head >= problem.heads) return {0, -1};
      ++round;
      const int heads = min(problem.together, problem.heads - first_head);
      const int place = of_heads * teams + seat(of_heads, first_head * unsigned(each), teams);
      if (place < heads * each) return tile_in_place<Slices>(place, first_head, heads, problem);
    }
  }
  // How many tiles there are from the first round on.
  __device__ __forceinline__ int count(const AttentionProblem& problem) const {
    const int teams = all(), each = int(problem.groups) * Slices;
    int count = 0;
    for (int first_head = 0; first_head < problem.heads; first_head += problem.together) {
      const int tiles = min(problem.together, problem.heads - first_head) * each;
      const int whole = tiles / teams, rest = tiles % teams;  // rounds, and what the last one deals
      count += whole + (seat(whole, first_head * unsigned(each), teams) < rest);
    }
    return count;
  }

 private:
  // Opaque: divisors are prepared where they are needed, not kept in registers.
  static __device__ __forceinline__ int all() { return opaque(gridDim.x) * Teams; }
  // Which of a round's tiles is the team's, of heads that come behind so many tiles of others.
  __device__ __forceinline__ int seat(int round, unsigned before, int teams) const {
    const int number = (team * gridDim.x + blockIdx.x + teams - before % teams) % teams;
    return round % 2 ? teams - 1 - number : number;
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
