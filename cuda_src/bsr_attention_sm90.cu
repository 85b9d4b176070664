// Attention over a block mask on Hopper's tensor cores (9.0a): bfloat16 and float16, through wgmma.
//
// bsr_attention_simt.cu, to be read first, says what is computed, bsr_attention_sm80.cu how its two
// products meet in registers. Here a thread block has two consumer warpgroups of 64 queries each
// and a producer warp for each of their teams. A team takes a tile of TILE_Q queries of one head
// (common/query_tile.cuh): both warpgroups one tile of 128, where a block has so many rows and
// keys are worth sharing, or a tile of 64 each, where the keys of a tile are better those of few
// rows. Thread blocks are persistent.
//
// The producer brings the tile's queries once, and its keys and values in stages of TILE_K keys:
// ENTRIES blocks, or a slice of one. A stage also says what the mask's states are. Stages in which
// a warpgroup has no block are left out.
//
//   scores(next) = query @ key(next).T    both are started together, and the softmax of the next
//   sums += weights @ value               stage runs under the second one
//
// Rows whose sums are not numbers are computed again (common/attention_row.cuh).
//
//   -DT, -DOUT, -DINDEX, -DMASK, -DSOFTCAP, -DSLOPES, -DSINKS, -DDROPOUT, -DFOLD
//   as in bsr_attention_sm80.cu
//   -DBM, -DBK            size of a block: multiples of 16; BK divides TILE_K or is its multiple
//   -DTILE_Q=64|128       queries of a team
//   -DTILE_K=32|64|128    keys of a stage
//   -DFEATURES, -DVALUE_FEATURES   columns, rounded up: multiples of 64, at most 256
//   -DSTAGES
#include "common/attention_tile.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

using namespace sparsegpu;

constexpr int CONSUMERS = 2;  // warpgroups
constexpr int TEAM = TILE_Q / 64, TEAMS = CONSUMERS / TEAM;
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int ENTRIES = BK < TILE_K ? TILE_K / BK : 1, SLICES_K = BK < TILE_K ? 1 : BK / TILE_K;
constexpr int KEYS = BK < TILE_K ? BK : TILE_K;  // of an entry in a stage
typedef QueryTile<BM, TILE_Q> Tile;
typedef KernelScore<float> TileScore;
typedef TileMask<MASK, BM, BK, TileScore> Mask;
constexpr int ROWS = Tile::ROWS;
static_assert(BM % 16 == 0 && BK % 16 == 0 && KEYS * ENTRIES == TILE_K, "whole strips");
static_assert(ENTRIES * ROWS <= 32, "a lane reads the state of one block");
static_assert(!FOLD || (!SINKS && !SOFTCAP && !SLOPES && !Mask::ADDED), "scores are accumulators");

// Panels of 64 columns, a line of 128 bytes for each row.
constexpr int PANEL = 64, LINE_BYTES = 128;
constexpr int QUERY_BYTES = TILE_Q * FEATURES * 2;
constexpr int KEY_BYTES = TILE_K * FEATURES * 2, VALUE_BYTES = TILE_K * VALUE_FEATURES * 2;
constexpr int STAGE_BYTES = KEY_BYTES + VALUE_BYTES;
constexpr int TEAM_BYTES = QUERY_BYTES + STAGES * STAGE_BYTES;

// What a team shares besides its tiles.
struct TeamMemory {
  unsigned long long keys_full[STAGES], values_full[STAGES], empty[STAGES];
  unsigned long long query_full, query_empty;
  INDEX state[STAGES][ENTRIES][ROWS];
  int key[STAGES][ENTRIES];  // the first of an entry
  int column[STAGES];        // of its block, where a stage is a slice
};

// The tensor maps of the operands (batch, rows, columns), and which matrix of them a head reads.
struct AttentionMaps {
  TensorMap query, key, value;
};
struct OperandMatrices {
  View query, key, value, mask;
};

// The tiles that a team takes, one after the other; those of a head at the same time.
__device__ __forceinline__ long long team_item(int team, int round) {
  const int teams = gridDim.x * TEAMS, number = team * gridDim.x + blockIdx.x;
  return (long long)round * teams + (round % 2 ? teams - 1 - number : number);
}

// Reads the schedule of a tile ahead: a lane holds the state of one block of a stage.
struct StageReader {
  const RowGroups<INDEX>& schedule;
  const INDEX* states;
  long long start;
  int entries;
  INDEX state;
  int column;  // block column of the lane's entry

  __device__ __forceinline__ StageReader(const RowGroups<INDEX>& schedule, const INDEX* states,
                                         long long group)
      : schedule(schedule),
        states(states),
        start(schedule.starts[group]),
        entries(schedule.counts[group]) {
    if (entries > 0) read(0);
  }
  __device__ __forceinline__ int stages() const {
    return (entries + ENTRIES - 1) / ENTRIES * SLICES_K;
  }
  __device__ __forceinline__ void read(int stage) {
    const int lane = threadIdx.x % 32, e = stage / SLICES_K * ENTRIES + lane / ROWS;
    const long long entry = start + min(e, entries - 1);  // the last one again, where none is left
    column = schedule.columns[entry];
    state = e < entries && lane < ENTRIES * ROWS ? states[entry * ROWS + lane % ROWS]
                                                 : INDEX(NOT_STORED);
  }
};

__device__ __forceinline__ void produce(int team, unsigned memory, TeamMemory& shared,
                                        const AttentionMaps& maps, const OperandMatrices& matrices,
                                        const Batch& batch, const RowGroups<INDEX>& schedule,
                                        const INDEX* states, const AttentionProblem& problem) {
  const int lane = threadIdx.x % 32;
  const unsigned stages = memory + QUERY_BYTES;
  const unsigned query_full = shared_address(&shared.query_full);
  const unsigned query_empty = shared_address(&shared.query_empty);
  int stage = 0, parity = 0;
  long long item;
  for (int round = 0; (item = team_item(team, round)) < problem.items; ++round) {
    const Tile tile(item, schedule, matrices.mask, batch, problem);
    const int query_matrix = int(tile.at.offset(matrices.query));
    const int key_matrix = int(tile.at.offset(matrices.key));
    const int value_matrix = int(tile.at.offset(matrices.value));
    StageReader reader(schedule, states, tile.group);
    mbarrier_wait(query_empty, round % 2 ^ 1);
    if (lane == 0) {
      mbarrier_arrive_expect_tx(query_full, QUERY_BYTES);
      for (int c = 0; c < FEATURES; c += PANEL)
        tma_load(memory + c * (TILE_Q * 2), maps.query, query_full, c, tile.first, query_matrix);
    }
    const int count = reader.stages();
    for (int number = 0; number < count; ++number) {
      const INDEX state = reader.state;
      const int slice = number % SLICES_K * TILE_K;
      const int key = reader.column * BK + slice;
      if (number + 1 < count) reader.read(number + 1);

      mbarrier_wait(shared_address(&shared.empty[stage]), parity ^ 1);
      if (lane < ENTRIES * ROWS) shared.state[stage][lane / ROWS][lane % ROWS] = state;
      if (lane < ENTRIES * ROWS && lane % ROWS == 0) shared.key[stage][lane / ROWS] = key;
      if (lane == 0) shared.column[stage] = slice;
      const unsigned keys_full = shared_address(&shared.keys_full[stage]);
      const unsigned values_full = shared_address(&shared.values_full[stage]);
      __syncwarp();
      if (lane == 0) {
        mbarrier_arrive_expect_tx(keys_full, KEY_BYTES);
        mbarrier_arrive_expect_tx(values_full, VALUE_BYTES);
      }
      __syncwarp();  // expect the bytes before they arrive
      if (lane < ENTRIES * ROWS && lane % ROWS == 0) {
        const unsigned keys = stages + stage * STAGE_BYTES + lane / ROWS * (KEYS * LINE_BYTES);
        for (int c = 0; c < FEATURES; c += PANEL)
          tma_load(keys + c * (TILE_K * 2), maps.key, keys_full, c, key, key_matrix);
        for (int c = 0; c < VALUE_FEATURES; c += PANEL)
          tma_load(keys + KEY_BYTES + c * (TILE_K * 2), maps.value, values_full, c, key,
                   value_matrix);
      }
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_attention_sm90(const __grid_constant__ AttentionMaps maps,
                       const __grid_constant__ OperandMatrices matrices,
                       const __grid_constant__ View out, const __grid_constant__ View lse,
                       const __grid_constant__ View query, const __grid_constant__ View key,
                       const __grid_constant__ View value, const __grid_constant__ View sinks,
                       const __grid_constant__ Batch batch,
                       const __grid_constant__ RowGroups<INDEX> schedule, const INDEX* states,
                       const unsigned* bits, const __grid_constant__ AttentionProblem problem,
                       const __grid_constant__ ScoreArgs<float> score_args) {
  extern __shared__ unsigned char dynamic[];
  __shared__ TeamMemory teams[TEAMS];
  const unsigned memory = shared_address(dynamic + (1024 - shared_address(dynamic) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int team = 0; team < TEAMS; ++team) {
      for (int s = 0; s < STAGES; ++s) {
        mbarrier_init(shared_address(&teams[team].keys_full[s]), 1);
        mbarrier_init(shared_address(&teams[team].values_full[s]), 1);
        mbarrier_init(shared_address(&teams[team].empty[s]), 4 * TEAM);
      }
      mbarrier_init(shared_address(&teams[team].query_full), 1);
      mbarrier_init(shared_address(&teams[team].query_empty), 4 * TEAM);
    }
    mbarrier_init_fence();
  }
  __syncthreads();

  // Broadcast: makes these warp-uniform.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (warp >= 4 * CONSUMERS) {
    setmaxnreg_dec<40>();
    const int team = warp - 4 * CONSUMERS;
    if (team < TEAMS)
      produce(team, memory + team * TEAM_BYTES, teams[team], maps, matrices, batch, schedule,
              states, problem);
    return;
  }

  setmaxnreg_inc<232>();
  const int team = warp / (4 * TEAM);
  const int first_row = warp / 4 % TEAM * 64;  // the warpgroup's, of the tile
  TeamMemory& shared = teams[team];
  const unsigned queries = memory + team * TEAM_BYTES + first_row * LINE_BYTES;
  const unsigned stages = memory + team * TEAM_BYTES + QUERY_BYTES;
  int stage = 0, parity = 0;  // of the next stage
  long long item;
  for (int round = 0; (item = team_item(team, round)) < problem.items; ++round) {
    const Tile tile(item, schedule, matrices.mask, batch, problem);
    const TileScore score(score_args, tile.at, tile.head);
    const Mask mask(score, bits, tile.matrix * problem.nnzb);
    const LaneQueries<Tile> rows(tile, first_row + 16 * (warp % 4));
    const int last_query = tile.first + first_row + 63;
    int left = (schedule.counts[tile.group] + ENTRIES - 1) / ENTRIES * SLICES_K;  // stages

    float start = minus_infinity<float>();
    if constexpr (SINKS) start = *tile.at.pointer<const float>(sinks);
    OnlineSoftmax softmax(FOLD ? score_args.scale * LOG2_E : LOG2_E, start);
    float sums[VALUE_FEATURES / 2];
#pragma unroll
    for (int i = 0; i < VALUE_FEATURES / 2; ++i) sums[i] = 0;
    float scores[TILE_K / 2], shrink[2];
    unsigned weights[TILE_K / 16][4];

    auto release = [&](int of_stage) {
      __syncwarp();  // lane 0 releases the stage for all lanes
      if (lane == 0) mbarrier_arrive(shared_address(&shared.empty[of_stage]));
    };
    // Whether the warpgroup has a block in a stage.
    auto works = [&](int of_stage) {
      bool found = false;
#pragma unroll
      for (int e = 0; e < ENTRIES; ++e) {
        const bool behind = score_args.causal && shared.key[of_stage][e] > last_query;
        const int last_row = min(Tile::block_row(first_row + 63), ROWS - 1);
#pragma unroll
        for (int r = 0; r < (ROWS == 1 ? 1 : 63 / BM + 2); ++r) {
          const int row = Tile::block_row(first_row) + r;
          found |= !behind && row <= last_row &&
                   shared.state[of_stage][e][min(row, last_row)] != NOT_STORED;
        }
      }
      return __shfl_sync(~0u, found, 0);
    };
    auto start_scores = [&](int of_stage) {
      const unsigned keys = stages + of_stage * STAGE_BYTES;
#pragma unroll
      for (int i = 0; i < TILE_K / 2; ++i) scores[i] = 0;
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < FEATURES; k += 16) {
        const int inside = k % PANEL * 2;
        wgmma<T, false, false>(
            scores,
            smem_descriptor<LINE_BYTES>(queries + k / PANEL * (TILE_Q * LINE_BYTES) + inside,
                                        8 * LINE_BYTES, 16),
            smem_descriptor<LINE_BYTES>(keys + k / PANEL * (TILE_K * LINE_BYTES) + inside,
                                        8 * LINE_BYTES, 16));
      }
      wgmma_commit();
    };
    auto start_sums = [&](int of_stage, int of_parity) {
      mbarrier_wait(shared_address(&shared.values_full[of_stage]), of_parity);
      const unsigned values = stages + of_stage * STAGE_BYTES + KEY_BYTES;
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < TILE_K / 16; ++k)
        wgmma<T, true>(sums, weights[k],
                       smem_descriptor<LINE_BYTES>(values + 16 * k * LINE_BYTES, 8 * LINE_BYTES,
                                                   TILE_K * LINE_BYTES));
      wgmma_commit();
    };
    // Turn scores into weights.
    auto weigh = [&](int of_stage) {
      auto strip = [&](int j) {
        const int e = 8 * j / KEYS, column = 8 * j % KEYS;
        const INDEX(&state)[ROWS] = shared.state[of_stage][e];
        return Strip<INDEX>{{state[rows.block_row[0]], state[rows.block_row[1]]},
                            shared.key[of_stage][e] + column,
                            (SLICES_K > 1 ? shared.column[of_stage] : 0) + column};
      };
      bool whole = true;
#pragma unroll
      for (int j = 0; j < TILE_K / 8; ++j) whole &= strip(j).all(rows, score_args.causal);
      score_strips<FOLD>(scores, rows, score, mask, __all_sync(~0u, whole), strip);
      softmax(scores, shrink);
      if (DROPOUT) drop_weights(scores, rows, score, strip);
    };
    auto round_weights = [&] {
#pragma unroll
      for (int k = 0; k < TILE_K / 16; ++k) weight_fragment<T>(weights[k], scores, k);
    };

    // The stage `now` has its weights, but not its sums.
    int now = 0, now_parity = 0;
    bool pending = false;
    auto finish_sums = [&] {
      if (!pending) return;
      start_sums(now, now_parity);
      wgmma_wait<0>();
      release(now);
      pending = false;
    };
    mbarrier_wait(shared_address(&shared.query_full), round % 2);
    for (; left > 0; --left) {
      mbarrier_wait(shared_address(&shared.keys_full[stage]), parity);
      if (!works(stage)) {
        finish_sums();  // a stage that is held would keep the next ones from coming
        mbarrier_wait(shared_address(&shared.values_full[stage]), parity);
        release(stage);
      } else {
        if (pending) {
          start_scores(stage);
          start_sums(now, now_parity);
          wgmma_wait<1>();
          weigh(stage);
          wgmma_wait<0>();
          release(now);
        } else {
          start_scores(stage);
          wgmma_wait<0>();
          weigh(stage);
        }
#pragma unroll
        for (int i = 0; i < VALUE_FEATURES / 2; ++i) sums[i] *= shrink[i / 2 % 2];
        round_weights();
        now = stage, now_parity = parity, pending = true;
      }
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    finish_sums();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(shared_address(&shared.query_empty));

    const HeadOperands<T> head(tile.at, query, key, value, problem.features,
                               problem.value_features);
    store_rows<OUT, BM, BK>(sums, softmax, FOLD ? score_args.scale : 1.0f, tile, rows, head,
                            schedule, states, score, mask, out, lse);
  }
}
