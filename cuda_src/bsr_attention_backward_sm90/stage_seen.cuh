// What the own rows of a warpgroup attend to in a stage, as the producer tells the consumers.
#pragma once

#include "common/attention_gradients.cuh"

namespace sparsegpu {

enum Seen { NOTHING_SEEN, PART_SEEN, ALL_SEEN };

// Say what the warpgroups of a team see of a stage of Entries entries with Each rows, as all lanes
// of the producer do; each has the state of a block and the first row of its entry.
template <bool ByQueries, typename Tile, int Entries, int Each, int Team, typename Index>
__device__ __forceinline__ void announce_seen(Seen (&seen)[Team], Index state, int first_other,
                                              int first_own, bool causal) {
  constexpr int ROWS = Tile::ROWS;
  const int lane = threadIdx.x % 32, row = lane % ROWS, last_other = first_other + Each - 1;
#pragma unroll
  for (int w = 0; w < Team; ++w) {
    const int own = first_own + 64 * w, last_row = min(Tile::block_row(64 * w + 63), ROWS - 1);
    const bool mine = lane < Entries * ROWS && row >= Tile::block_row(64 * w) && row <= last_row;
    const bool late = causal && (ByQueries ? first_other > own + 63 : last_other < own);
    const bool cut = causal && (ByQueries ? last_other > own : first_other < own + 63);
    const bool any = __any_sync(~0u, mine && state != NOT_STORED && !late);
    const bool all = __all_sync(~0u, !mine || (state == ALL_TRUE && !cut));
    if (lane == 0) seen[w] = !any ? NOTHING_SEEN : all ? ALL_SEEN : PART_SEEN;
  }
}

}  // namespace sparsegpu
