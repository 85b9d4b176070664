// The work of the teams of attention's kernels for Hopper: which tiles a team takes, what its
// producer reads of their schedules, and how it tells the consumers. A team is one or two consumer
// warpgroups that share a tile, and a producer warp.
#pragma once

#include "common/ceil_div.cuh"
#include "common/query_tile.cuh"

namespace sparsegpu {

// The tiles that a team takes, one after the other; those of a head at the same time.
template <int Teams>
__device__ __forceinline__ long long team_item(int team, int round) {
  const int teams = gridDim.x * Teams, number = team * gridDim.x + blockIdx.x;
  return (long long)round * teams + (round % 2 ? teams - 1 - number : number);
}

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
