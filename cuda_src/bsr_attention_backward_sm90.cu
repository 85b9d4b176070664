// Gradients of attention's query, or of its key and value, through wgmma (9.0a): bfloat16, float16.
//
// bsr_attention_backward_sm80.cu, to be read first, says what is computed and in which order,
// bsr_attention_sm90.cu how teams of warpgroups share tiles. A team takes a tile of TILE_OWN rows
// of the operand that the gradient is of, 64 a warpgroup, and its producer brings the rows of the
// other side in stages of TILE_OTHER: ENTRIES blocks, or a slice of one. Scores are computed with
// own rows as rows, so that weights and gradients of scores are left operands of the second
// products as they stand in registers. Of a stage, in the order of the tensor cores:
//
//   scores   = left @ other_left.T
//   dweights = right @ other_right.T     under it scores become weights
//   second  += weights @ other_right     of key and value; under it dweights become dscores
//   first   += dscores @ other_left      the next stage's scores follow without a wait
//
// A producer warp of a team brings the stages, another one for each warpgroup its own rows, as soon
// as the last product that reads those of the tile before is done.
//
// The gradient of query leaves two numbers of each query for those of key and value, whose producer
// brings them with a stage: the power of two that weights are relative to, and delta.
//
//   -DT, -DINDEX, -DMASK, -DSOFTCAP, -DSLOPES, -DBM, -DBK, -DDROPOUT, -DGRADIENT
//   as in bsr_attention_backward_sm80.cu; BM, BK: multiples of 16
//   -DFEATURES=64|128, -DVALUE_FEATURES=64|128   columns, rounded up
//   -DTILE_OWN=64|128                  rows of a team
//   -DTILE_KEYS, -DTILE_QUERIES        rows of a stage: 32, 64 or 128; a block's divide them or are
//                                      multiples of them
//   -DKEY_STAGES, -DQUERY_STAGES       of keys, for the gradient of query, and of queries
#include "bsr_attention_backward_sm90/own_rows.cuh"
#include "bsr_attention_backward_sm90/stage_products.cuh"
#include "bsr_attention_backward_sm90/stage_seen.cuh"
#include "bsr_attention_backward_sm90/stage_weights.cuh"
#include "common/attention_teams.cuh"
#include "common/warp_arrive.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"

using namespace sparsegpu;

constexpr bool BY_QUERIES = Gradient::GRADIENT == Gradient::query;
constexpr int OWN = BY_QUERIES ? BM : BK, OTHER = BY_QUERIES ? BK : BM;
constexpr int TILE_OTHER = BY_QUERIES ? TILE_KEYS : TILE_QUERIES;
constexpr int STAGES = BY_QUERIES ? KEY_STAGES : QUERY_STAGES;
constexpr int CONSUMERS = 2;  // warpgroups
constexpr int TEAM = TILE_OWN / 64, TEAMS = CONSUMERS / TEAM;
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int ENTRIES = OTHER < TILE_OTHER ? TILE_OTHER / OTHER : 1;
constexpr int SLICES = OTHER < TILE_OTHER ? 1 : OTHER / TILE_OTHER;
constexpr int EACH = OTHER < TILE_OTHER ? OTHER : TILE_OTHER;  // rows of an entry in a stage
// Producers need more registers for slices and for 64-bit indices. Consumers can spare these unless
// they hold many sums, of gradients and of a stage.
constexpr int SUMS = (FEATURES + (BY_QUERIES ? 0 : VALUE_FEATURES)) / 2 + TILE_OTHER;
constexpr int PRODUCER_REGISTERS = (SLICES > 1 || sizeof(INDEX) == 8) && SUMS <= 160 ? 40 : 24;
constexpr int CONSUMER_REGISTERS = 252 - PRODUCER_REGISTERS / CONSUMERS;
typedef QueryTile<OWN, TILE_OWN> Tile;
typedef KernelScore<float> TileScore;
typedef TileMask<MASK, BM, BK, TileScore> Mask;
constexpr int ROWS = Tile::ROWS;
constexpr bool FOLDED = !SOFTCAP && !SLOPES && !Mask::ADDED;
typedef StageWeights<T, TILE_OTHER, BY_QUERIES, OTHER, FOLDED, SOFTCAP, DROPOUT> Weights;
static_assert(BM % 16 == 0 && BK % 16 == 0 && EACH * ENTRIES == TILE_OTHER, "whole strips");
static_assert(ENTRIES * ROWS <= 32, "a lane reads the state of one block");

constexpr int LEFT_BYTES = TILE_OWN * FEATURES * 2;
constexpr int OWN_BYTES = LEFT_BYTES + TILE_OWN * VALUE_FEATURES * 2;
constexpr int OTHER_LEFT_BYTES = TILE_OTHER * FEATURES * 2;
constexpr int STAGE_BYTES = OTHER_LEFT_BYTES + TILE_OTHER * VALUE_FEATURES * 2;
constexpr int TEAM_BYTES = OWN_BYTES + STAGES * STAGE_BYTES;
constexpr int NUMBERS = BY_QUERIES ? 0 : TILE_OTHER;  // of each kind, in a stage

// A team's tile of one head, which its producer leaves in shared memory for the consumers: their
// registers are needed for sums.
struct HeadTile {
  static constexpr int BLOCK_M = Tile::BLOCK_M;
  BatchIndex at;
  int first, first_in_block, rows;
  int stages;
  TileNumber which;  // of the first head that shares the gradient; negative behind the last one
  long long matrix;
  long long number;  // of the head, as dropout counts them
  int share;         // number of the head among those that add to one gradient
  int own_parity;

  static __device__ __forceinline__ int block_row(int row) { return Tile::block_row(row); }
  __device__ __forceinline__ int row_in_block(int row) const {
    return ROWS == 1 ? first_in_block + row : row % OWN;
  }
};

// What a team shares besides its tiles.
struct TeamMemory {
  alignas(16) float base[STAGES][NUMBERS + 4], delta[STAGES][NUMBERS + 4];
  unsigned long long own_full[TEAM], own_empty[TEAM];  // a warpgroup's own rows
  unsigned long long head_full[2], head_empty[2], full[STAGES], empty[STAGES];
  INDEX state[STAGES][ENTRIES][ROWS];
  int first[STAGES][ENTRIES];  // the first row of an entry
  int column[STAGES];          // of its block, where a stage is a slice
  Seen seen[STAGES][TEAM];     // by a warpgroup
  HeadTile heads[2];
};

// The tensor maps of the operands (batch, rows, columns), which matrix of them a head reads, and
// its number.
struct GradientMaps {
  TensorMap left, right, other_left, other_right;
};
struct OperandMatrices {
  View left, right, other_left, other_right, number, mask;
};

// Bring a warpgroup's own rows, those of the next tile as soon as the last product that reads the
// ones before is done. Until then they come to the L2, and those of `out` with them.
__device__ __forceinline__ void produce_own(int of_team, unsigned memory, TeamMemory& shared,
                                            const GradientMaps& maps,
                                            const OperandMatrices& matrices, const View& left,
                                            const View& right, const View& out,
                                            const AttentionProblem& problem) {
  const int lane = threadIdx.x % 32, first_row = of_team * 64;
  const unsigned own = memory + first_row * LINE_BYTES;
#pragma unroll 1
  for (int number = 0;; ++number) {
    const int slot = number % 2;
    mbarrier_wait(shared_address(&shared.head_full[slot]), number / 2 % 2);
    const HeadTile& tile = shared.heads[slot];
    if (__all_sync(~0u, tile.which.number < 0)) break;
    if (BY_QUERIES || tile.share == 0) {  // heads share what a gradient is of, but not grad
      const int first = tile.first + first_row, rows = min(tile.rows - first_row, 64);
      prefetch_rows<T>(tile.at, left, first, rows, problem.features);
      prefetch_rows<T>(tile.at, right, first, rows, problem.value_features);
      if constexpr (BY_QUERIES) prefetch_rows<T>(tile.at, out, first, rows, problem.value_features);
      mbarrier_wait(shared_address(&shared.own_empty[of_team]), tile.own_parity ^ 1);
      if (lane == 0) {
        const unsigned full = shared_address(&shared.own_full[of_team]);
        const int left_matrix = int(tile.at.offset(matrices.left));
        const int right_matrix = int(tile.at.offset(matrices.right));
        mbarrier_arrive_expect_tx(full, OWN_BYTES / TEAM);
        for (int c = 0; c < FEATURES; c += PANEL)
          tma_load(own + c * (TILE_OWN * 2), maps.left, full, c, first, left_matrix);
        for (int c = 0; c < VALUE_FEATURES; c += PANEL)
          tma_load(own + LEFT_BYTES + c * (TILE_OWN * 2), maps.right, full, c, first, right_matrix);
      }
    }
    warp_arrive(shared_address(&shared.head_empty[slot]));
  }
}

__device__ __forceinline__ void produce(int team, unsigned memory, TeamMemory& shared,
                                        const GradientMaps& maps, const OperandMatrices& matrices,
                                        const View& delta, const float* bases, const Batch& batch,
                                        const RowGroups<INDEX>& schedule, const INDEX* states,
                                        const AttentionProblem& problem, int shares, bool causal) {
  const int lane = threadIdx.x % 32;
  const unsigned stages = memory + OWN_BYTES;
  int stage = 0, parity = 0, own_parity = 0, slot = 0, slot_parity = 0;
  TeamTiles<TEAMS, Tile::SLICES> tiles(team);
  for (TileNumber next; (next = tiles.next(problem)).number >= 0;) {
    const TileNumber which = {next.head * shares, next.number};
    // Other heads may have other masks, in whose order the same rows stand elsewhere.
    const long long matrix = BatchIndex(batch, which.head).offset(matrices.mask) * problem.groups;
    const int slice = next.number % Tile::SLICES;
    const int number = int(schedule.order[matrix + next.number / Tile::SLICES] - matrix);
#pragma unroll 1
    for (int share = 0; share < shares; ++share) {
      const Tile tile(which.head + share, number, slice, matrices.mask, batch, problem);
      StageReader<INDEX, ENTRIES, ROWS, SLICES, EACH> reader(schedule, states, tile.group);
      const int count = reader.stages();
      mbarrier_wait(shared_address(&shared.head_empty[slot]), slot_parity ^ 1);
      if (lane == 0) {
        shared.heads[slot] = {
            tile.at, tile.first, tile.first_in_block, tile.rows,
            count,   which,      tile.matrix,         tile.at.offset(matrices.number),
            share,   own_parity};
        mbarrier_arrive(shared_address(&shared.head_full[slot]));
      }
      slot_parity ^= slot;
      slot ^= 1;
      if (BY_QUERIES || share == 0) own_parity ^= 1;
      const int other_left = int(tile.at.offset(matrices.other_left));
      const int other_right = int(tile.at.offset(matrices.other_right));
      const long long of_head = tile.at.offset(delta);
      for (int number = 0; number < count; ++number) {
        const auto [state, slice, first] = reader.take(number, count);

        mbarrier_wait(shared_address(&shared.empty[stage]), parity ^ 1);
        announce<ENTRIES, ROWS>(shared, stage, lane, state, first, slice);
        announce_seen<BY_QUERIES, Tile, ENTRIES, EACH>(shared.seen[stage], state, first, tile.first,
                                                       causal);
        const unsigned full = shared_address(&shared.full[stage]);
        __syncwarp();
        if (lane == 0)
          mbarrier_arrive_expect_tx(full, STAGE_BYTES + 2 * 4 * NUMBERS);
        else if (EACH_LANE_ARRIVES)
          mbarrier_arrive(full);
        __syncwarp();  // expect the bytes before they arrive
        if (lane < ENTRIES * ROWS && lane % ROWS == 0) {
          const unsigned to = stages + stage * STAGE_BYTES + lane / ROWS * (EACH * LINE_BYTES);
          for (int c = 0; c < FEATURES; c += PANEL)
            tma_load(to + c * (TILE_OTHER * 2), maps.other_left, full, c, first, other_left);
          for (int c = 0; c < VALUE_FEATURES; c += PANEL)
            tma_load(to + OTHER_LEFT_BYTES + c * (TILE_OTHER * 2), maps.other_right, full, c, first,
                     other_right);
          if constexpr (!BY_QUERIES) {
            const float* deltas = static_cast<const float*>(delta.ptr);
            bulk_load(shared_address(&shared.base[stage][lane / ROWS * EACH]),
                      bases + of_head + first, 4 * EACH, full);
            bulk_load(shared_address(&shared.delta[stage][lane / ROWS * EACH]),
                      deltas + of_head + first, 4 * EACH, full);
          }
        }
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
  }
  mbarrier_wait(shared_address(&shared.head_empty[slot]), slot_parity ^ 1);
  if (lane == 0) {
    shared.heads[slot].which.number = -1;
    mbarrier_arrive(shared_address(&shared.head_full[slot]));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) bsr_attention_backward_sm90(
    const __grid_constant__ GradientMaps maps, const __grid_constant__ OperandMatrices matrices,
    const __grid_constant__ View first, const __grid_constant__ View second,
    const __grid_constant__ View query, const __grid_constant__ View key,
    const __grid_constant__ View value, const __grid_constant__ View grad,
    const __grid_constant__ View out, const __grid_constant__ View lse,
    const __grid_constant__ View grad_lse, const __grid_constant__ View delta, float* bases,
    const __grid_constant__ Batch batch, const __grid_constant__ RowGroups<INDEX> schedule,
    const INDEX* states, const unsigned* bits, const __grid_constant__ AttentionProblem problem,
    long long shares, const __grid_constant__ ScoreArgs<float> score_args) {
  extern __shared__ unsigned char dynamic[];
  __shared__ TeamMemory teams[TEAMS];
  const unsigned memory = shared_address(dynamic + (1024 - shared_address(dynamic) % 1024) % 1024);
  if (threadIdx.x == 0) {
    for (int team = 0; team < TEAMS; ++team) {
      for (int s = 0; s < STAGES; ++s) {
        mbarrier_init(shared_address(&teams[team].full[s]), WARP_ARRIVALS);
        mbarrier_init(shared_address(&teams[team].empty[s]), 4 * TEAM * WARP_ARRIVALS);
      }
      for (int s = 0; s < 2; ++s) {
        mbarrier_init(shared_address(&teams[team].head_full[s]), 1);
        mbarrier_init(shared_address(&teams[team].head_empty[s]), 5 * TEAM * WARP_ARRIVALS);
      }
      for (int w = 0; w < TEAM; ++w) {
        mbarrier_init(shared_address(&teams[team].own_full[w]), 1);
        mbarrier_init(shared_address(&teams[team].own_empty[w]), 4 * WARP_ARRIVALS);
      }
    }
    mbarrier_init_fence();
  }
  __syncthreads();

  // Broadcast: makes these warp-uniform.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const GradientOperands operands = {query, key, value, grad, lse, delta};
  if (warp >= 4 * CONSUMERS) {
    setmaxnreg_dec<PRODUCER_REGISTERS>();
    // A warp for the stages of each team, and one for the own rows of each warpgroup.
    const int number = warp - 4 * CONSUMERS, consumer = number - TEAMS;
    const int team = number < TEAMS ? number : consumer / TEAM;
    const unsigned of_team = memory + team * TEAM_BYTES;
    if (number < TEAMS)
      produce(team, of_team, teams[team], maps, matrices, delta, bases, batch, schedule, states,
              problem, int(shares), score_args.causal);
    else if (consumer < CONSUMERS)
      produce_own(consumer % TEAM, of_team, teams[team], maps, matrices, BY_QUERIES ? query : key,
                  BY_QUERIES ? grad : value, out, problem);
    return;
  }

  setmaxnreg_inc<CONSUMER_REGISTERS>();
  const int team = TEAMS == 1 ? 0 : warp / (4 * TEAM);
  const int of_team = TEAM == 1 ? 0 : warp / 4, first_row = of_team * 64;
  const int warp_row = first_row + warp % 4 * 16;
  TeamMemory& shared = teams[team];
  const unsigned own_left = memory + team * TEAM_BYTES + first_row * LINE_BYTES;
  const unsigned own_right = own_left + LEFT_BYTES;
  const unsigned stages = memory + team * TEAM_BYTES + OWN_BYTES;
  auto arrive = [&](const unsigned long long& barrier) { warp_arrive(shared_address(&barrier)); };
  float first_sums[FEATURES / 2] = {};
  float second_sums[VALUE_FEATURES / 2] = {};  // of key and value
  int taken = 0;                               // stages
  for (int number = 0;; ++number) {
    const int slot = number % 2;
    mbarrier_wait(shared_address(&shared.head_full[slot]), number / 2 % 2);
    const HeadTile& tile = shared.heads[slot];
    if (__all_sync(~0u, tile.which.number < 0)) break;
    float own_base[2], own_delta[2];  // of queries
    if constexpr (BY_QUERIES) {
      const LaneQueries<HeadTile> rows(tile, warp_row);
      query_numbers<T, VALUE_FEATURES>(own_base, own_delta, tile.at, rows.query, operands, out,
                                       grad_lse, problem.value_features);
      const long long of_head = tile.at.offset(delta);  // contiguous
      float* const deltas = static_cast<float*>(delta.ptr) + of_head;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (lane % 4 == 0 && warp_row + lane / 4 + 8 * r < tile.rows) {
          deltas[rows.query[r]] = own_delta[r];
          bases[of_head + rows.query[r]] = own_base[r];
        }
    }

    // Whether the stage before has products for `first` under way, and is read by nothing else.
    bool pending = false;
    auto release_pending = [&] {
      if (pending) arrive(shared.empty[(taken + STAGES - 1) % STAGES]);
      pending = false;
    };
    if (BY_QUERIES || tile.share == 0)
      mbarrier_wait(shared_address(&shared.own_full[of_team]), tile.own_parity);
    const bool complete = __all_sync(~0u, tile.share + 1 == int(shares));
    // Behind the last product that reads the own rows, of `left` stages that are left.
    auto release_own = [&](int left) {
      if (left <= 1 && (BY_QUERIES || complete)) arrive(shared.own_empty[of_team]);
    };
    if (tile.stages == 0) release_own(0);
#pragma unroll 1
    for (int left = tile.stages; left > 0; --left, ++taken) {
      const int stage = taken % STAGES;
      // Broadcast: with warp-uniform addresses the descriptors are made beside the products.
      const unsigned other_left = __shfl_sync(~0u, stages + stage * STAGE_BYTES, 0);
      const unsigned other_right = other_left + OTHER_LEFT_BYTES;
      mbarrier_wait(shared_address(&shared.full[stage]), taken / STAGES % 2);
      const int seen = shared.seen[stage][of_team];
      if (__any_sync(~0u, seen != NOTHING_SEEN)) {
        Weights::Numbers scores, dweights;
        Weights::Fragments weights, dscores;
        start_dots<T, FEATURES, TILE_OWN>(scores, own_left, other_left);
        wgmma_wait<1>();  // the stage before: dweights may have the registers of its dscores
        release_pending();
        start_dots<T, VALUE_FEATURES, TILE_OWN>(dweights, own_right, other_right);
        wgmma_wait<1>();  // all before dweights

        const TileScore score(score_args, tile.at, tile.number);
        const Mask mask(score, bits, tile.matrix * problem.nnzb);
        const LaneQueries<HeadTile> rows(tile, warp_row);
        auto strip = [&](int j) {
          const int e = 8 * j / EACH, column = 8 * j % EACH;
          const INDEX(&state)[ROWS] = shared.state[stage][e];
          return Strip<INDEX>{{state[rows.block_row[0]], state[rows.block_row[1]]},
                              shared.first[stage][e] + column,
                              (SLICES > 1 ? shared.column[stage] : 0) + column};
        };
        auto base = [&](int i) {
          if constexpr (BY_QUERIES) return own_base[i / 2 % 2];
          return shared.base[stage][8 * (i / 4) + lane % 4 * 2 + i % 2];
        };
        auto delta_of = [&](int i) {
          if constexpr (BY_QUERIES) return own_delta[i / 2 % 2];
          return shared.delta[stage][8 * (i / 4) + lane % 4 * 2 + i % 2];
        };
        Weights of_stage;
        if (__any_sync(~0u, seen == ALL_SEEN) || Weights::whole(rows, score_args.causal, strip))
          of_stage.template weigh<true>(scores, weights, rows, score, mask, strip, base);
        else
          of_stage.template weigh<false>(scores, weights, rows, score, mask, strip, base);
        if constexpr (BY_QUERIES) {
          wgmma_wait<0>();
        } else {
          start_sums<T>(second_sums, weights, other_right);
          wgmma_wait<1>();
        }
        release_own(left);
        of_stage.differentiate(dscores, scores, dweights, score, delta_of);
        start_sums<T>(first_sums, dscores, other_left);
        pending = true;
      } else {
        wgmma_wait<0>();  // a stage that is held would keep the next ones from coming
        release_pending();
        release_own(left);
        arrive(shared.empty[stage]);
      }
    }
    wgmma_wait<0>();
    release_pending();
    if (!complete) {
      arrive(shared.head_empty[slot]);
      continue;
    }

    const LaneQueries<HeadTile> rows(tile, warp_row);
    unsigned again = store_rows(tile.at.pointer<T>(first), first, problem.features, first_sums,
                                score_args.scale, tile, rows);
    if constexpr (!BY_QUERIES)
      again |= store_rows(tile.at.pointer<T>(second), second, problem.value_features, second_sums,
                          1.0f, tile, rows);
    const TileNumber which = tile.which;
    arrive(shared.head_empty[slot]);
#pragma unroll
    for (float& sum : first_sums) sum = 0;
#pragma unroll
    for (float& sum : second_sums) sum = 0;
    if (!again) continue;
    Tile again_tile(which, schedule, matrices.mask, batch, problem);
    const PlainGradient<BY_QUERIES, INDEX> plain = {operands, matrices.mask, first,      second,
                                                    batch,    schedule,      states,     bits,
                                                    problem,  score_args,    which.head, shares};
    plain.rows<T, TileScore, Mask, OTHER, DROPOUT>(again, again_tile, warp_row);
  }
}
