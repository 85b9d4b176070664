// Which tiles of attention each team takes (common/attention_teams.cuh): a thread is a team.
// -DTEAMS_EACH=N -DSLICES_EACH=N
#include "common/attention_teams.cuh"

using namespace sparsegpu;

// takers[head][tile]: how many teams take the tile. counts[team]: how many tiles it takes, and
// work[team] the sum of their lengths, of which a head's first one has the most.
extern "C" __global__ void probe_teams(int* takers, int* counts, int* work,
                                       const __grid_constant__ AttentionProblem problem) {
  const int team = threadIdx.x, number = team * gridDim.x + blockIdx.x;
  const int each = int(problem.groups) * SLICES_EACH;
  TeamTiles<TEAMS_EACH, SLICES_EACH> tiles(team);
  for (TileNumber next; (next = tiles.next(problem)).number >= 0;) {
    ++takers[next.head * each + next.number];
    ++counts[number];
    work[number] += each - next.number;
  }
}
