// Gradients of attention's query, or of its key and value, with mma.sync: bfloat16 and float16.
//
// bsr_attention_backward_simt.cu, to be read first, says what is computed; bsr_attention_sm80.cu
// how tiles are copied. A thread block takes TILE_OWN rows of the operand that the gradient is of,
// sixteen a warp, and walks the rows of the other side in tiles of TILE_OTHER. For the gradient of
// query it walks the pattern, for those of key and value its transpose (`schedule`); states of
// blocks are those of the mask in either case. With "own" and "other" rows both are one:
//
//                      GRADIENT = query     GRADIENT = key
//   own, other         queries, keys        keys, queries
//   left, other_left   query, key           key, query
//   right, other_right grad, value          value, grad
//
//   scores   = left @ other_left.T       weights  = exp(logit - lse)
//   dweights = right @ other_right.T     dscores  = weights * (dweights - delta)
//   first   += dscores @ other_left      the gradient of query, or of key
//   second  += weights @ other_right     the gradient of value
//
// `shares` heads in a row of the batch add to one gradient, one after the other, in registers.
// Every element is written once, in one order of summation: the same bits every run. Rows whose
// sums are not finite are computed again in plain code, which leaves out what is not attended.
//
// GRADIENT = query leaves delta = rowsum(grad * out) - grad_lse for the kernels that follow.
//
//   -DT, -DINDEX, -DMASK, -DSOFTCAP, -DSLOPES, -DBM, -DBK, -DDROPOUT, -DFEATURES,
//   -DVALUE_FEATURES, -DBLOCKS         as in bsr_attention_sm80.cu
//   -DGRADIENT=query|key
//   -DTILE_OWN=64|128, -DTILE_OTHER    rows of a tile; TILE_OTHER: a multiple of 16
#include "common/attention_tile.cuh"
#include "common/strip_ring.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"

using namespace sparsegpu;

enum class Gradient { query, key };
constexpr bool BY_QUERIES = Gradient::GRADIENT == Gradient::query;
constexpr int OWN = BY_QUERIES ? BM : BK, OTHER = BY_QUERIES ? BK : BM;
constexpr int WARPS = TILE_OWN / 16, THREADS = 32 * WARPS, STRIPS = TILE_OTHER / 8;
typedef QueryTile<OWN, TILE_OWN> Tile;
typedef KeyStrips<OTHER> Strips;
typedef KernelScore<float> TileScore;
typedef TileMask<MASK, BM, BK, TileScore> Mask;
typedef StripRing<INDEX, STRIPS, Tile::ROWS> Ring;
typedef Panels<TILE_OWN, FEATURES> LeftPanels;
typedef Panels<TILE_OWN, VALUE_FEATURES> RightPanels;
typedef Panels<TILE_OTHER, FEATURES> OtherLeftPanels;
typedef Panels<TILE_OTHER, VALUE_FEATURES> OtherRightPanels;
constexpr int STAGE_BYTES = OtherLeftPanels::BYTES + OtherRightPanels::BYTES;
// Of all steps, more fragments than there are registers would be loaded ahead.
constexpr int FRAGMENTS_AHEAD = Mask::ADDED || DROPOUT ? 1 : 2;
static_assert(STRIPS * Tile::ROWS <= THREADS, "a thread for each strip and block row");
static_assert(2 * TILE_OTHER <= THREADS, "a thread for each number of a query");

// What every head has.
struct Operands {
  const View &query, &key, &value, &grad, &lse, &delta;
};

// One head: its operands as own and other ones, its numbers of queries.
struct Head {
  const T *left, *right, *other_left, *other_right;
  long long left_row, right_row, other_left_row, other_right_row;
  const float *lse, *delta;
  long long lse_row, delta_row;

  __device__ __forceinline__ Head(const BatchIndex& at, const Operands& of)
      : left(at.pointer<const T>(BY_QUERIES ? of.query : of.key)),
        right(at.pointer<const T>(BY_QUERIES ? of.grad : of.value)),
        other_left(at.pointer<const T>(BY_QUERIES ? of.key : of.query)),
        other_right(at.pointer<const T>(BY_QUERIES ? of.value : of.grad)),
        left_row(BY_QUERIES ? of.query.row : of.key.row),
        right_row(BY_QUERIES ? of.grad.row : of.value.row),
        other_left_row(BY_QUERIES ? of.key.row : of.query.row),
        other_right_row(BY_QUERIES ? of.value.row : of.grad.row),
        lse(at.pointer<const float>(of.lse)),
        delta(at.pointer<const float>(of.delta)),
        lse_row(of.lse.row),
        delta_row(of.delta.row) {}
};

// Whether the mask, and the order, let own row `own` and other row `other` meet: `row` and `column`
// of a block with this state. What the mask adds is added to x.
__device__ __forceinline__ bool attends(const TileScore& score, const Mask& mask, long long state,
                                        int row, int column, int own, int other, float& x) {
  bool attended[1];
  float added[1] = {x};
  mask.row(state, BY_QUERIES ? row : column, BY_QUERIES ? column : row, attended, added);
  x = added[0];
  return attended[0] && column < OTHER &&
         score.in_order(BY_QUERIES ? own : other, BY_QUERIES ? other : own);
}

// What a pair of rows gives: its weight after dropout, and what the loss changes by with its
// accumulator, but for the scale.
struct Given {
  float weight, dscore;
  bool kept;
};
__device__ __forceinline__ Given given(const TileScore& score, bool attended, float x, float bend,
                                       float dweight, int own, int other, float lse, float delta) {
  const int query = BY_QUERIES ? own : other, key = BY_QUERIES ? other : own;
  const float base = lse == minus_infinity<float>() ? 0.0f : lse;
  const float weight = exp2_approx((x - base) * LOG2_E);
  Given result;
  result.kept = attended && (!DROPOUT || score.keeps(true, query, key));
  result.weight = result.kept ? weight * score.args.kept_scale : 0.0f;
  result.dscore =
      attended ? ((result.kept ? result.weight * dweight : 0.0f) - weight * delta) * bend : 0.0f;
  return result;
}

// Add the products of a warp's sixteen rows with the lines of two tiles, by columns: acc = a @ b.T.
template <typename A, typename B>
__device__ __forceinline__ void dot_rows(float (&acc)[STRIPS * 4], unsigned a_tile,
                                         unsigned b_tile) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned a_lane = A::address(0, 16 * warp + lane % 16, lane / 16 * 8);
  const unsigned b_lane = B::address(0, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll FRAGMENTS_AHEAD
  for (int k = 0; k < A::WIDTH / 16; ++k) {
    unsigned a[4];
    ldmatrix_x4(a, a_tile + A::advance(a_lane, 0, 16 * k));
#pragma unroll
    for (int j = 0; j < STRIPS; j += 2) {
      unsigned b[4];
      ldmatrix_x4(b, b_tile + B::advance(b_lane, 8 * j, 16 * k));
      mma<T>(reinterpret_cast<float (&)[4]>(acc[4 * j]), a, {b[0], b[1]});
      mma<T>(reinterpret_cast<float (&)[4]>(acc[4 * j + 4]), a, {b[2], b[3]});
    }
  }
}

// Add the products of a warp's numbers with the lines of a tile: sums += numbers @ b.
template <typename B>
__device__ __forceinline__ void add_rows(float (&sums)[B::WIDTH / 2],
                                         const float (&numbers)[STRIPS * 4], unsigned b_tile) {
  const int lane = threadIdx.x % 32;
  const unsigned b_lane = B::address(0, lane % 16, lane / 16 * 8);
#pragma unroll
  for (int k = 0; k < STRIPS / 2; ++k) {
    unsigned a[4];
    weight_fragment<T>(a, numbers, k);
#pragma unroll
    for (int n = 0; n < B::WIDTH / 8; n += 2) {
      unsigned b[4];
      ldmatrix_x4_trans(b, b_tile + B::advance(b_lane, 16 * k, 8 * n));
      mma<T>(reinterpret_cast<float (&)[4]>(sums[4 * n]), a, {b[0], b[1]});
      mma<T>(reinterpret_cast<float (&)[4]>(sums[4 * n + 4]), a, {b[2], b[3]});
    }
  }
}

// Store a warp's rows of a gradient; return a bit for each row that is not finite.
template <int N>
__device__ __forceinline__ unsigned store_gradient(T* to, const View& gradient, int columns,
                                                   const float (&sums)[N], float scale,
                                                   const Tile& tile,
                                                   const LaneQueries<Tile>& rows) {
  const int lane = threadIdx.x % 32;
  unsigned again = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool here = rows.first + lane / 4 + 8 * r < tile.rows;
    bool finite = true;
#pragma unroll
    for (int n = 0; n < N / 4; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float x = sums[4 * n + 2 * r + i];
        const int column = 8 * n + lane % 4 * 2 + i;
        finite &= fabsf(x) < -minus_infinity<float>();
        if (here && column < columns)
          to[(long long)rows.query[r] * gradient.row + column * gradient.col] =
              round_to<T>(x * scale);
      }
    }
    const unsigned lanes = __ballot_sync(~0u, here && !finite);
#pragma unroll
    for (int g = 0; g < 8; ++g) again |= (lanes >> 4 * g & 15) != 0 ? 1u << (g + 8 * r) : 0u;
  }
  return again;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) bsr_attention_backward_sm80(
    const __grid_constant__ View first, const __grid_constant__ View second,
    const __grid_constant__ View query, const __grid_constant__ View key,
    const __grid_constant__ View value, const __grid_constant__ View grad,
    const __grid_constant__ View out, const __grid_constant__ View lse,
    const __grid_constant__ View grad_lse, const __grid_constant__ View delta,
    const __grid_constant__ View matrices, const __grid_constant__ Batch batch,
    const __grid_constant__ RowGroups<INDEX> schedule, const INDEX* states, const unsigned* bits,
    const __grid_constant__ AttentionProblem problem, long long shares,
    const __grid_constant__ ScoreArgs<float> score_args) {
  extern __shared__ __align__(1024) unsigned char dynamic[];
  __shared__ Ring ring;
  __shared__ float of_queries[2][2][TILE_OTHER];  // by stage: lse and delta of the other rows
  const unsigned stages = shared_address(dynamic);
  const unsigned left_tile = stages + 2 * STAGE_BYTES, right_tile = left_tile + LeftPanels::BYTES;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Operands operands = {query, key, value, grad, lse, delta};
  const int features = problem.features, value_features = problem.value_features;

  const long long each = problem.groups * Tile::SLICES, owner = blockIdx.x / each;
  const long long first_head = owner * shares;
  Tile tile(blockIdx.x + (first_head - owner) * each, schedule, matrices, batch, problem);
  const BatchIndex own_at = tile.at;
  const LaneQueries<Tile> rows(tile, 16 * warp);

  float first_sums[FEATURES / 2] = {};
  float second_sums[VALUE_FEATURES / 2] = {};  // of key and value

#pragma unroll 1
  for (long long b = first_head; b < first_head + shares; ++b) {
    tile.enter(b, matrices, batch, problem);
    // delta is contiguous in the order of the heads, so its place says a head's number.
    const TileScore score(score_args, tile.at, tile.at.offset(delta) / score_args.queries);
    const Mask mask(score, bits, tile.matrix * problem.nnzb);
    const Head head(tile.at, operands);

    __syncthreads();  // the tiles of the head before have been read
    auto copy_own = [&](const T* base, long long row) {
      return [&, base, row](int line) -> const T* {
        return line < tile.rows ? base + (long long)(tile.first + line) * row : nullptr;
      };
    };
    copy_lines<LeftPanels, THREADS>(left_tile, features, copy_own(head.left, head.left_row));
    copy_lines<RightPanels, THREADS>(right_tile, value_features,
                                     copy_own(head.right, head.right_row));

    float own_lse[2] = {0, 0}, own_delta[2] = {0, 0};  // of queries
    if constexpr (BY_QUERIES) {
      const T* results = tile.at.pointer<const T>(out);
      float* deltas = tile.at.pointer<float>(delta);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const long long i = rows.query[r];
        float sum = 0;
#pragma unroll 4
        for (int e = lane % 4; e < value_features; e += 4)
          sum = fma_acc(to_acc(head.right[i * head.right_row + e]),
                        to_acc(results[i * out.row + e * out.col]), sum);
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (grad_lse.ptr != nullptr)
          sum -= tile.at.pointer<const float>(grad_lse)[i * grad_lse.row];
        if (lane % 4 == 0 && rows.first + lane / 4 + 8 * r < tile.rows) deltas[i * delta.row] = sum;
        own_lse[r] = head.lse[i * head.lse_row];
        own_delta[r] = sum;
      }
    }

    StripReader<Strips, Ring> reader(schedule, states, tile.group);
    const int tiles = (reader.strips + STRIPS - 1) / STRIPS;
    reader.begin(ring);
    __syncthreads();

    auto copy_other = [&](int number) {
      const unsigned to = stages + number % 2 * STAGE_BYTES;
      const int (&starts)[STRIPS] = ring.key[number % Ring::SLOTS];
      auto other = [&starts, number](int line) {  // negative: there is none
        const int strip = line / 8;
        const bool here = starts[strip] >= 0 &&
                          (OTHER % 8 == 0 || line % 8 < Strips::width(number * STRIPS + strip));
        return here ? starts[strip] + line % 8 : -1;
      };
      auto line_of = [&](const T* base, long long row) {
        return [&other, base, row](int line) -> const T* {
          const int j = other(line);
          return j < 0 ? nullptr : base + j * row;
        };
      };
      copy_lines<OtherLeftPanels, THREADS>(to, features,
                                           line_of(head.other_left, head.other_left_row));
      copy_lines<OtherRightPanels, THREADS>(to + OtherLeftPanels::BYTES, value_features,
                                            line_of(head.other_right, head.other_right_row));
      if (!BY_QUERIES && threadIdx.x < 2 * TILE_OTHER) {
        const int which = threadIdx.x / TILE_OTHER, line = threadIdx.x % TILE_OTHER;
        const int j = other(line);
        const float* from = which ? head.delta + j * head.delta_row : head.lse + j * head.lse_row;
        cp_async<4>(shared_address(&of_queries[number % 2][which][line]), from, j >= 0);
      }
    };
    if (tiles > 0) copy_other(0);
    cp_async_commit();

#pragma unroll 1
    for (int number = 0; number < tiles; ++number) {
      cp_async_wait<0>();
      __syncthreads();  // this tile has arrived, the one before has been read
      if (number + 1 < tiles) copy_other(number + 1);
      cp_async_commit();
      reader.store(ring, number + 2);
      reader.read(number + 3);

      const int slot = number % Ring::SLOTS;
      bool any = false;
#pragma unroll
      for (int j = 0; j < STRIPS; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int other = ring.key[slot][j];
          const bool late =
              score_args.causal && (BY_QUERIES ? other > rows.query[r] : other + 7 < rows.query[r]);
          any |= ring.state[slot][rows.block_row[r]][j] != NOT_STORED && !late;
        }
      if (!__any_sync(~0u, any)) continue;

      const unsigned others = stages + number % 2 * STAGE_BYTES;
      const unsigned others_right = others + OtherLeftPanels::BYTES;
      float scores[STRIPS * 4] = {}, dweights[STRIPS * 4] = {};
      dot_rows<LeftPanels, OtherLeftPanels>(scores, left_tile, others);
      dot_rows<RightPanels, OtherRightPanels>(dweights, right_tile, others_right);
#pragma unroll
      for (int i = 0; i < STRIPS * 4; ++i) {
        const int j = i / 4, r = i / 2 % 2, line = lane % 4 * 2 + i % 2;
        const int own = rows.query[r], other = ring.key[slot][j] + line;
        const int column = Strips::column(number * STRIPS + j) + line;
        float x =
            BY_QUERIES ? score.score(scores[i], own, other) : score.score(scores[i], other, own);
        const bool attended = attends(score, mask, ring.state[slot][rows.block_row[r]][j],
                                      rows.row_in_block[r], column, own, other, x);
        const auto& numbers = of_queries[number % 2];
        const Given pair = given(score, attended, x, score.bend(scores[i]), dweights[i], own, other,
                                 BY_QUERIES ? own_lse[r] : numbers[0][8 * j + line],
                                 BY_QUERIES ? own_delta[r] : numbers[1][8 * j + line]);
        scores[i] = pair.dscore;
        dweights[i] = pair.weight;
      }
      add_rows<OtherLeftPanels>(first_sums, scores, others);
      if constexpr (!BY_QUERIES) add_rows<OtherRightPanels>(second_sums, dweights, others_right);
    }
    cp_async_wait<0>();
  }

  T* const first_to = own_at.pointer<T>(first);
  T* const second_to = BY_QUERIES ? nullptr : own_at.pointer<T>(second);
  unsigned again =
      store_gradient(first_to, first, features, first_sums, score_args.scale, tile, rows);
  if constexpr (!BY_QUERIES)
    again |= store_gradient(second_to, second, value_features, second_sums, 1.0f, tile, rows);
  if (!again) return;
  __syncwarp();  // behind what was stored, delta too

  // In plain code: the rows with a sum that is not finite.
  const int width = BY_QUERIES ? features : max(features, value_features);
#pragma unroll 1
  for (; again; again &= again - 1) {
    const int of_tile = rows.first + __ffs(again) - 1, own = tile.first + of_tile;
    const int block_row = Tile::block_row(of_tile), row = tile.row_in_block(of_tile);
#pragma unroll 1
    for (int c = lane; c - lane < width; c += 32) {
      float sums[2] = {0, 0};
#pragma unroll 1
      for (long long b = first_head; b < first_head + shares; ++b) {
        tile.enter(b, matrices, batch, problem);
        const TileScore score(score_args, tile.at, tile.at.offset(delta) / score_args.queries);
        const Mask mask(score, bits, tile.matrix * problem.nnzb);
        const Head head(tile.at, operands);
        const T* left = head.left + own * head.left_row;
        const T* right = head.right + own * head.right_row;
#pragma unroll 1
        for (int e = 0; e < schedule.counts[tile.group]; ++e) {
          const long long entry = schedule.starts[tile.group] + e;
          const long long state = states[entry * Tile::ROWS + block_row];
          if (state == NOT_STORED) continue;
#pragma unroll 1
          for (int n0 = 0; n0 < OTHER; n0 += 32) {
            const int n = n0 + lane;
            const long long first_other = (long long)schedule.columns[entry] * OTHER + n0;
            Given pair = {0, 0, false};
            bool attended = false;
            if (n < OTHER) {
              const int other = int(first_other) + lane;
              const T* other_left = head.other_left + other * head.other_left_row;
              const T* other_right = head.other_right + other * head.other_right_row;
              float acc = 0, dweight = 0;
#pragma unroll 1
              for (int i = 0; i < features; ++i)
                acc = fma_acc(to_acc(left[i]), to_acc(other_left[i]), acc);
#pragma unroll 1
              for (int i = 0; i < value_features; ++i)
                dweight = fma_acc(to_acc(right[i]), to_acc(other_right[i]), dweight);
              const long long of_query = BY_QUERIES ? own : other;
              float x = BY_QUERIES ? score.score(acc, own, other) : score.score(acc, other, own);
              attended = attends(score, mask, state, row, n, own, other, x);
              pair =
                  given(score, attended, x, score.bend(acc), dweight, own, other,
                        head.lse[of_query * head.lse_row], head.delta[of_query * head.delta_row]);
            }
            unsigned met = __ballot_sync(~0u, attended);
            const unsigned kept = __ballot_sync(~0u, pair.kept);
#pragma unroll 1
            for (; met; met &= met - 1) {
              const int i = __ffs(met) - 1;
              const float dscore = __shfl_sync(~0u, pair.dscore, i);
              const float weight = __shfl_sync(~0u, pair.weight, i);
              const long long other = first_other + i;
              if (c < features)
                sums[0] = fma_acc(dscore, to_acc(head.other_left[other * head.other_left_row + c]),
                                  sums[0]);
              if (!BY_QUERIES && c < value_features && kept >> i & 1)
                sums[1] = fma_acc(
                    weight, to_acc(head.other_right[other * head.other_right_row + c]), sums[1]);
            }
          }
        }
      }
      if (c < features)
        first_to[own * first.row + c * first.col] = round_to<T>(sums[0] * score_args.scale);
      if (!BY_QUERIES && c < value_features)
        second_to[own * second.row + c * second.col] = round_to<T>(sums[1]);
    }
  }
}
