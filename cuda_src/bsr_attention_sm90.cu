// Attention over a block mask on Hopper's tensor cores (9.0a): bfloat16 and float16, through wgmma.
//
// bsr_attention_simt.cu, to be read first, says what is computed, bsr_attention_sm80.cu how its two
// products meet in registers. Here a thread block has two or three consumer warpgroups of 64
// queries each and a producer warp for each of their teams. A team takes a tile of TILE_Q queries
// of one head (common/query_tile.cuh): both warpgroups one tile of 128, where a block has so many
// rows and keys are worth sharing, or a tile of 64 each, where the keys of a tile are better those
// of few rows. Thread blocks are persistent.
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
//   -DCONSUMERS=2|3|4     warpgroups; 3 for tiles of 64
//   -DFEATURES, -DVALUE_FEATURES   columns, rounded up: multiples of 64, at most 256
//   -DSTAGES              of keys and values
//   -DQUERY_STAGES=1|2    of queries: with 2 those of the next tile come during this one
//   -DSPLIT_KV=0|1        as in bsr_attention_sm80.cu
#include "common/attention_dropout.cuh"
#include "common/attention_teams.cuh"
#include "common/attention_store.cuh"
#include "common/warp_arrive.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/opaque.cuh"
#include "ptx/wgmma.cuh"

using namespace sparsegpu;

constexpr int TEAM = TILE_Q / 64, TEAMS = CONSUMERS / TEAM;
constexpr int THREADS = 128 * (CONSUMERS + 1);
// A warpgroup that requests more registers than others have released waits for ever. At launch
// every thread has an equal share of 65536, a multiple of 8.
constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 24 : 32;
constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 240 : CONSUMERS == 3 ? 160 : 112;
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <=
                  65536 / THREADS / 8 * 8 * (CONSUMERS + 1),
              "registers of the thread block");
constexpr int ENTRIES = BK < TILE_K ? TILE_K / BK : 1, SLICES_K = BK < TILE_K ? 1 : BK / TILE_K;
constexpr int KEYS = BK < TILE_K ? BK : TILE_K, STRIPS = KEYS / 8;  // of an entry in a stage
typedef QueryTile<BM, TILE_Q, SPLIT_KV> Tile;
typedef KernelScore<float> TileScore;
typedef TileMask<MASK, BM, BK, TileScore> Mask;
constexpr int ROWS = Tile::ROWS;
constexpr bool ONE_BLOCK = ROWS == 1 && ENTRIES == 1;  // of the mask, in a stage
static_assert(BM % 16 == 0 && BK % 16 == 0 && KEYS * ENTRIES == TILE_K, "whole strips");
static_assert(ENTRIES * ROWS <= 32, "a lane reads the state of one block");
static_assert(!FOLD || (!SOFTCAP && !SLOPES && !Mask::ADDED), "scores are accumulators");

// Panels of 64 columns, a line of 128 bytes for each row.
constexpr int PANEL = 64, LINE_BYTES = 128;
constexpr int QUERY_BYTES = TILE_Q * FEATURES * 2;
constexpr int KEY_BYTES = TILE_K * FEATURES * 2, VALUE_BYTES = TILE_K * VALUE_FEATURES * 2;
constexpr int STAGE_BYTES = KEY_BYTES + VALUE_BYTES;
constexpr int TEAM_BYTES = QUERY_STAGES * QUERY_BYTES + STAGES * STAGE_BYTES;
// Descriptions of tiles: one more than there are stages of queries, because queries are released
// before their tile is stored, and one for the producer, which describes a tile before it waits for
// a stage of queries.
constexpr int TILES = QUERY_STAGES + 2;
// Stages of a tile's keys that are copied before its queries: when the consumers release the
// queries of the tile before, these stages hold no keys any more.
constexpr int EARLY_STAGES = STAGES - 2;

// What a team shares besides its tiles.
struct TeamMemory {
  unsigned long long full[STAGES], empty[STAGES];
  unsigned long long query_full[QUERY_STAGES], query_empty[QUERY_STAGES];
  Tile tile[TILES];
  int stages[TILES];  // of its keys; behind the last tile, a negative number
  INDEX state[STAGES][ENTRIES][ROWS];
  // A bit a block, in the order of `state`: whether it is stored, whether all of it is attended.
  uint2 known[STAGES];
  int first[STAGES][ENTRIES];  // the first of an entry
  int column[STAGES];          // of its block, where a stage is a slice
};

// The tensor maps of the operands (batch, rows, columns), and which matrix of them a head reads.
struct AttentionMaps {
  TensorMap query, key, value;
};
struct OperandMatrices {
  View query, key, value, mask;
};

__device__ __forceinline__ void produce(int team, unsigned memory, TeamMemory& shared,
                                        const AttentionMaps& maps, const OperandMatrices& matrices,
                                        const Batch& batch, const RowGroups<INDEX>& schedule,
                                        const INDEX* states, const AttentionProblem& problem) {
  const int lane = threadIdx.x % 32;
  const unsigned stages = memory + QUERY_STAGES * QUERY_BYTES;
  int stage = 0, parity = 0, round = 0;
  TeamTiles<TEAMS, Tile::SLICES> tiles(team);
  for (TileNumber next; (next = tiles.next(problem)).number >= 0; ++round) {
    const Tile tile(next, schedule, matrices.mask, batch, problem);
    const int query_matrix = int(tile.at.offset(matrices.query));
    const int key_matrix = int(tile.at.offset(matrices.key));
    const int value_matrix = int(tile.at.offset(matrices.value));
    StageReader<INDEX, ENTRIES, ROWS, SLICES_K, KEYS> reader(schedule, states, tile.group);
    const int count = reader.stages();
    if (lane == 0) {
      shared.tile[round % TILES] = tile;
      shared.stages[round % TILES] = count;
    }
    for (int number = 0;; ++number) {
      if (number == min(EARLY_STAGES, count)) {
        const int room = round % QUERY_STAGES;
        mbarrier_wait(shared_address(&shared.query_empty[room]), round / QUERY_STAGES % 2 ^ 1);
        if (lane == 0) {
          const unsigned query_full = shared_address(&shared.query_full[room]);
          const unsigned queries = memory + room * QUERY_BYTES;
          mbarrier_arrive_expect_tx(query_full, QUERY_BYTES);
          for (int c = 0; c < FEATURES; c += PANEL)
            tma_load(queries + c * (TILE_Q * 2), maps.query, query_full, c, tile.first,
                     query_matrix);
        }
      }
      if (number == count) break;
      const auto [state, slice, key] = reader.take(number, count);

      mbarrier_wait(shared_address(&shared.empty[stage]), parity ^ 1);
      announce<ENTRIES, ROWS>(shared, stage, lane, state, key, slice);
      const uint2 known = {__ballot_sync(~0u, state != NOT_STORED),
                           __ballot_sync(~0u, state == ALL_TRUE)};
      if (lane == 0) shared.known[stage] = known;
      const unsigned full = shared_address(&shared.full[stage]);
      __syncwarp();
      if (lane == 0) {
        mbarrier_arrive_expect_tx(full, STAGE_BYTES);
      } else if (EACH_LANE_ARRIVES) {
        mbarrier_arrive(full);
      }
      __syncwarp();  // expect the bytes before they arrive
      if (lane < ENTRIES * ROWS && lane % ROWS == 0) {
        const unsigned keys = stages + stage * STAGE_BYTES + lane / ROWS * (KEYS * LINE_BYTES);
        for (int c = 0; c < FEATURES; c += PANEL)
          tma_load(keys + c * (TILE_K * 2), maps.key, full, c, key, key_matrix);
        for (int c = 0; c < VALUE_FEATURES; c += PANEL)
          tma_load(keys + KEY_BYTES + c * (TILE_K * 2), maps.value, full, c, key, value_matrix);
      }
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  }
  const int room = round % QUERY_STAGES;
  mbarrier_wait(shared_address(&shared.query_empty[room]), round / QUERY_STAGES % 2 ^ 1);
  if (lane == 0) {  // instead of queries
    shared.stages[round % TILES] = -1;
    mbarrier_arrive(shared_address(&shared.query_full[room]));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) bsr_attention_sm90(
    const __grid_constant__ AttentionMaps maps, const __grid_constant__ OperandMatrices matrices,
    const __grid_constant__ View out, const __grid_constant__ View lse,
    const __grid_constant__ View query, const __grid_constant__ View key,
    const __grid_constant__ View value, const __grid_constant__ View sinks,
    const __grid_constant__ Batch batch, const __grid_constant__ RowGroups<INDEX> schedule,
    const INDEX* states, const unsigned* bits, const __grid_constant__ AttentionProblem problem,
    const __grid_constant__ ScoreArgs<float> score_args, float* parts, long long splits) {
  extern __shared__ unsigned char dynamic[];
  __shared__ TeamMemory teams[TEAMS];
  // Opaque: descriptors begin with a register, not with the address made again.
  const unsigned memory =
      opaque(shared_address(dynamic + (1024 - shared_address(dynamic) % 1024) % 1024));
  if (threadIdx.x == 0) {
    for (int team = 0; team < TEAMS; ++team) {
      for (int s = 0; s < STAGES; ++s) {
        mbarrier_init(shared_address(&teams[team].full[s]), WARP_ARRIVALS);
        mbarrier_init(shared_address(&teams[team].empty[s]), 4 * TEAM * WARP_ARRIVALS);
      }
      for (int q = 0; q < QUERY_STAGES; ++q) {
        mbarrier_init(shared_address(&teams[team].query_full[q]), 1);
        mbarrier_init(shared_address(&teams[team].query_empty[q]), 4 * TEAM * WARP_ARRIVALS);
      }
    }
    mbarrier_init_fence();
  }
  __syncthreads();

  // Broadcast: makes `warp` warp-uniform.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if (warp >= 4 * CONSUMERS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    const int team = warp - 4 * CONSUMERS;
    if (team < TEAMS)
      produce(team, memory + team * TEAM_BYTES, teams[team], maps, matrices, batch, schedule,
              states, problem);
    return;
  }

  setmaxnreg_inc<CONSUMER_REGISTERS>();
  const int team = warp / (4 * TEAM);
  const int first_row = warp / 4 % TEAM * 64;  // the warpgroup's, of the tile
  TeamMemory& shared = teams[team];
  const unsigned of_team = memory + team * TEAM_BYTES;
  const unsigned stages = of_team + QUERY_STAGES * QUERY_BYTES;
  int stage = 0, parity = 0;  // of the next stage
  for (int round = 0;; ++round) {
    const int room = round % QUERY_STAGES;
    mbarrier_wait(shared_address(&shared.query_full[room]), round / QUERY_STAGES % 2);
    int left = shared.stages[round % TILES];
    if (left < 0) break;
    const Tile& tile = shared.tile[round % TILES];
    const TileScore score(score_args, tile.at, tile.head);
    const Mask mask(score, bits, tile.matrix * problem.nnzb);
    const LaneQueries<Tile> rows(tile, first_row + 16 * (warp % 4));
    const unsigned long long queries = smem_descriptor<LINE_BYTES>(
        of_team + room * QUERY_BYTES + first_row * LINE_BYTES, 8 * LINE_BYTES, 16);
    const WarpDropout<DROPOUT, BK, LaneQueries<Tile>, TileScore> dropout(rows, score);

    // Stages may be for the other warpgroup, or for queries behind its own.
    const int last_block_row = min(Tile::block_row(first_row + 63), ROWS - 1);
    const unsigned its_rows = (2u << last_block_row) - (1u << Tile::block_row(first_row));
    const bool looks = (TEAM > 1 && ROWS > 1) || score_args.causal;

    OnlineSoftmax softmax(FOLD, score_args.scale);
    const float sink = SINKS ? *tile.at.pointer<const float>(sinks) : minus_infinity<float>();
    float sums[VALUE_FEATURES / 2];
#pragma unroll
    for (int i = 0; i < VALUE_FEATURES / 2; ++i) sums[i] = 0;
    float scores[TILE_K / 2], shrink[2];
    unsigned weights[TILE_K / 16][4];

    auto release = [&](int of_stage) { warp_arrive(shared_address(&shared.empty[of_stage])); };
    // Whether the warpgroup has a block in a stage.
    auto works = [&](int of_stage) {
      const unsigned stored = shared.known[of_stage].x;
      bool found = false;
#pragma unroll
      for (int e = 0; e < ENTRIES; ++e) {
        const bool behind =
            score_args.causal && shared.first[of_stage][e] > tile.first + first_row + 63;
        found |= !behind && (stored >> (e * ROWS) & its_rows);
      }
      return __shfl_sync(~0u, found, 0);
    };
    auto start_scores = [&](int of_stage) {
      const unsigned long long keys =
          smem_descriptor<LINE_BYTES>(stages + of_stage * STAGE_BYTES, 8 * LINE_BYTES, 16);
#pragma unroll
      for (int i = 0; i < TILE_K / 2; ++i) scores[i] = 0;
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < FEATURES; k += 16) {
        const int panel = k / PANEL, inside = k % PANEL * 2;
        wgmma<T, false, false>(scores,
                               smem_further(queries, panel * (TILE_Q * LINE_BYTES) + inside),
                               smem_further(keys, panel * (TILE_K * LINE_BYTES) + inside));
      }
      wgmma_commit();
    };
    auto start_sums = [&](int of_stage) {
      const unsigned long long values = smem_descriptor<LINE_BYTES>(
          stages + of_stage * STAGE_BYTES + KEY_BYTES, 8 * LINE_BYTES, TILE_K * LINE_BYTES);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < TILE_K / 16; ++k)
        wgmma<T, true>(sums, weights[k], smem_further(values, 16 * k * LINE_BYTES));
      wgmma_commit();
    };
    auto strip_of = [&](int of_stage, int j) {
      const int e = 8 * j / KEYS, column = 8 * j % KEYS;
      const INDEX(&state)[ROWS] = shared.state[of_stage][e];
      return Strip<INDEX>{{state[rows.block_row[0]], state[rows.block_row[1]]},
                          shared.first[of_stage][e] + column,
                          (SLICES_K > 1 ? (shared.column[of_stage] & -KEYS) : 0) + column};
    };
    // Of each block of a stage, whether the warp, whose rows are of one block row, uses it, and
    // whether it sees all of it. Keys ascend.
    bool used[ENTRIES], whole[ENTRIES];
    auto look = [&](int of_stage) {
      const uint2 known = shared.known[of_stage];
#pragma unroll
      for (int e = 0; e < ENTRIES; ++e) {
        const int block = e * ROWS + rows.block_row[0];
        used[e] = ONE_BLOCK || known.x >> block & 1;
        whole[e] = known.y >> block & 1;
        if (score_args.causal) {
          const int first = shared.first[of_stage][e];
          used[e] = ONE_BLOCK || (used[e] && first <= rows.query[1]);
          whole[e] = whole[e] && first + KEYS - 1 <= rows.query[0];
        }
        used[e] = ONE_BLOCK || __any_sync(~0u, used[e]);
        whole[e] = __all_sync(~0u, whole[e]);
      }
    };
    // Turn scores into weights.
    auto weigh = [&](int of_stage) {
      auto strip = [&](int j) { return strip_of(of_stage, j); };
#pragma unroll
      for (int e = 0; e < ENTRIES; ++e)
        if (used[e])
          score_strips<FOLD>(scores, e * STRIPS, e * STRIPS + STRIPS, rows, score, mask, whole[e],
                             strip);
      softmax(scores, used, shrink);
      if (DROPOUT) {
#pragma unroll
        for (int e = 0; e < ENTRIES; ++e)
          if (used[e]) dropout.template drop<STRIPS, 8>(scores, e * STRIPS, strip);
      }
    };
    auto round_weights = [&] {
#pragma unroll
      for (int k = 0; k < TILE_K / 16; ++k) weight_fragment<T>(weights[k], scores, k);
    };

    // The stage `now` has its weights, but not its sums.
    int now = 0;
    bool pending = false;
    auto finish_sums = [&] {
      if (!pending) return;
      start_sums(now);
      wgmma_wait<0>();
      release(now);
      pending = false;
    };
    const auto release_queries = [&] { warp_arrive(shared_address(&shared.query_empty[room])); };
    if (left == 0) release_queries();
    for (; left > 0; --left) {
      mbarrier_wait(shared_address(&shared.full[stage]), parity);
      if (looks && !works(stage)) {
        finish_sums();  // a stage that is held would keep the next ones from coming
        release(stage);
        if (left == 1) release_queries();
      } else {
        start_scores(stage);
        if (pending) {
          start_sums(now);
          look(stage);
          wgmma_wait<1>();
        } else {
          look(stage);
          wgmma_wait<0>();
        }
        if (left == 1) release_queries();
        weigh(stage);
        wgmma_wait_behind<0>(softmax.sum[0] + softmax.sum[1]);
        if (pending) release(now);
        softmax.rescale(sums, shrink);
        round_weights();
        now = stage, pending = true;
      }
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    finish_sums();
    auto operands = [&] {
      return HeadOperands<T>(tile.at, query, key, value, problem.features, problem.value_features);
    };
    store_tile_rows<OUT, SINKS, BM, BK>(sums, softmax, tile, rows, operands, problem.value_features,
                                        schedule, states, score, mask, out, lse, sink, parts,
                                        splits);
  }
}
