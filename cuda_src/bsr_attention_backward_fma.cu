// Gradients of attention's query, or of its key and value, in full precision: float32 by fused
// multiply-adds of register tiles.
//
// bsr_attention_backward_sm80.cu, to be read first, says how own and other rows are walked, and why
// the bits are the same every run; bsr_attention_fma.cu how a register tile multiplies. A thread
// has ROWS own rows of a tile: OTHERS of their scores, every ACROSS-th, and then every ACROSS-th
// vector of their sums. In between the rows' numbers go through shared memory.
//
//   -DT=f32
//   -DINDEX, -DMASK, -DSOFTCAP, -DSLOPES, -DBM, -DBK, -DDROPOUT, -DBLOCKS, -DGRADIENT
//                                 as in bsr_attention_backward_sm80.cu
//   -DTILE_OTHER                  other rows of a tile: 16, 32 or 64
//   -DFEATURES, -DVALUE_FEATURES  columns, rounded up: multiples of 256 bytes
#include "common/attention_gradients.cuh"
#include "common/ceil_div.cuh"
#include "common/padded_rows.cuh"
#include "common/strip_ring.cuh"

using namespace sparsegpu;

constexpr bool BY_QUERIES = Gradient::GRADIENT == Gradient::query;
constexpr int OWN = BY_QUERIES ? BM : BK, OTHER = BY_QUERIES ? BK : BM;
constexpr int ACROSS = 16, DOWN = 8, THREADS = ACROSS * DOWN;
constexpr int PIECE = Vector<T>::SIZE, PANEL = ACROSS * PIECE;
constexpr int ROWS = 8, OTHERS = TILE_OTHER / ACROSS;
constexpr int TILE_OWN = DOWN * ROWS, STRIPS = TILE_OTHER / 8;
typedef QueryTile<OWN, TILE_OWN> Tile;
typedef KeyStrips<OTHER> Strips;
typedef KernelScore<float> TileScore;
typedef TileMask<MASK, BM, BK, TileScore> Mask;
typedef Pairs<BY_QUERIES, OTHER, DROPOUT> OfPairs;
typedef StripRing<INDEX, STRIPS, Tile::ROWS> Ring;
typedef PaddedRows<T, FEATURES> LeftRows;
typedef PaddedRows<T, VALUE_FEATURES> RightRows;
typedef PaddedRows<T, TILE_OTHER> PairRows;
static_assert(FEATURES % PANEL == 0 && VALUE_FEATURES % PANEL == 0, "whole panels");
static_assert(STRIPS * Tile::ROWS <= THREADS, "a thread for each strip and block row");
static_assert(2 * TILE_OTHER <= THREADS, "a thread for each number of a query");

// Combine what the lanes that share a row have.
__device__ __forceinline__ float sum_across(float x) {
#pragma unroll
  for (int apart = 1; apart < ACROSS; apart *= 2) x += __shfl_xor_sync(~0u, x, apart);
  return x;
}

// The products of a thread's own rows with other rows: own @ other.T.
template <typename Rows>
__device__ __forceinline__ void dot_rows(float (&acc)[ROWS][OTHERS], const Rows& own, int first,
                                         const Rows& other, int x) {
#pragma unroll 2
  for (int e = 0; e < Rows::WIDTH; e += PIECE) {
    Vector<T> b[OTHERS];
#pragma unroll
    for (int j = 0; j < OTHERS; ++j) b[j] = other.vector(x + ACROSS * j, e);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const Vector<T> a = own.vector(first + i, e);
#pragma unroll
      for (int j = 0; j < OTHERS; ++j)
#pragma unroll
        for (int c = 0; c < PIECE; ++c) acc[i][j] = fma_acc(a.at[c], b[j].at[c], acc[i][j]);
    }
  }
}

// Add numbers of pairs times other rows to the sums of a thread's own rows. The numbers of a row go
// through `staged`; all its threads are of one warp.
template <typename Rows>
__device__ __forceinline__ void add_rows(float (&sums)[ROWS][Rows::WIDTH / ACROSS],
                                         const float (&numbers)[ROWS][OTHERS],
                                         const PairRows& staged, int first, const Rows& other,
                                         int x) {
  __syncwarp();  // what was staged before has been read
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < OTHERS; ++j)
      staged.at[(first + i) * PairRows::LENGTH + x + ACROSS * j] = numbers[i][j];
  __syncwarp();
#pragma unroll 1
  for (int k = 0; k < TILE_OTHER; k += PIECE) {
    Vector<T> a[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) a[i] = staged.vector(first + i, k);
#pragma unroll
    for (int c = 0; c < PIECE; ++c)
#pragma unroll
      for (int p = 0; p < Rows::WIDTH / PANEL; ++p) {
        const Vector<T> b = other.vector(k + c, p * PANEL + x * PIECE);
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
          for (int n = 0; n < PIECE; ++n)
            sums[i][p * PIECE + n] = fma_acc(a[i].at[c], b.at[n], sums[i][p * PIECE + n]);
      }
  }
}

// Store the thread's rows of a gradient, of whole vectors; return a bit for each row of the warp
// that is not finite.
template <int COLUMNS>
__device__ __forceinline__ unsigned store_rows(T* to, const View& gradient, int columns,
                                               const float (&sums)[ROWS][COLUMNS], float scale,
                                               const Tile& tile, int first, int x) {
  unsigned again = 0;
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    const bool here = first + i < tile.rows;
    T* const line = to + (long long)(tile.first + first + i) * gradient.row;
    bool finite = true;
#pragma unroll
    for (int c = 0; c < COLUMNS; c += PIECE) {
      const int column = c / PIECE * PANEL + x * PIECE;
      Vector<T> piece;
#pragma unroll
      for (int n = 0; n < PIECE; ++n) {
        finite &= fabsf(sums[i][c + n]) < -minus_infinity<float>();
        piece.at[n] = sums[i][c + n] * scale;
      }
      if (here && column < columns) *reinterpret_cast<Vector<T>*>(line + column) = piece;
    }
    const unsigned lanes = __ballot_sync(~0u, here && !finite);
    again |= (lanes & 0xffff ? 1u << i : 0) | (lanes >> ACROSS ? 1u << (ROWS + i) : 0);
  }
  return again;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) bsr_attention_backward_fma(
    const __grid_constant__ View first_gradient, const __grid_constant__ View second_gradient,
    const __grid_constant__ View query, const __grid_constant__ View key,
    const __grid_constant__ View value, const __grid_constant__ View grad,
    const __grid_constant__ View out, const __grid_constant__ View lse,
    const __grid_constant__ View grad_lse, const __grid_constant__ View delta,
    const __grid_constant__ View matrices, const __grid_constant__ Batch batch,
    const __grid_constant__ RowGroups<INDEX> schedule, const INDEX* states, const unsigned* bits,
    const __grid_constant__ AttentionProblem problem, long long shares,
    const __grid_constant__ ScoreArgs<float> score_args) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ Ring ring;
  __shared__ float of_queries[2][TILE_OTHER];  // lse and delta of the other rows
  const LeftRows left = {reinterpret_cast<T*>(dynamic)};
  const RightRows right = {left.at + TILE_OWN * LeftRows::LENGTH};
  const LeftRows other_left = {right.at + TILE_OWN * RightRows::LENGTH};
  const RightRows other_right = {other_left.at + TILE_OTHER * LeftRows::LENGTH};
  const PairRows staged = {other_right.at + TILE_OTHER * RightRows::LENGTH};
  const int x = threadIdx.x % ACROSS;
  const int first = threadIdx.x / ACROSS * ROWS;  // row of the tile
  const GradientOperands operands = {query, key, value, grad, lse, delta};
  const int features = problem.features, value_features = problem.value_features;

  const TileNumber of_owner = tile_in_order<Tile::SLICES>(blockIdx.x, problem);
  const long long first_head = of_owner.head * shares;
  Tile tile({first_head, of_owner.number}, schedule, matrices, batch, problem);
  // A thread's rows behind the last one repeat it, and are not stored.
  auto row_of = [&](int i) { return min(first + i, tile.rows - 1); };

  float first_sums[ROWS][FEATURES / ACROSS] = {};
  float second_sums[ROWS][VALUE_FEATURES / ACROSS] = {};  // of key and value

#pragma unroll 1
  for (long long b = first_head; b < first_head + shares; ++b) {
    tile.enter(b, matrices, batch, problem);
    // delta is contiguous in the order of the heads, so its place says a head's number.
    const TileScore score(score_args, tile.at, tile.at.offset(delta) / score_args.queries);
    const Mask mask(score, bits, tile.matrix * problem.nnzb);
    const GradientHead<T, BY_QUERIES> head(tile.at, operands);

    __syncthreads();  // the tiles of the head before have been read
    left.copy<THREADS>(TILE_OWN, features, tile.lines(head.left, head.left_row));
    right.copy<THREADS>(TILE_OWN, value_features, tile.lines(head.right, head.right_row));

    float own_lse[ROWS] = {}, own_delta[ROWS] = {};  // of queries
    if constexpr (BY_QUERIES) {
      const T* results = tile.at.pointer<const T>(out);
      float* deltas = tile.at.pointer<float>(delta);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const long long row = tile.first + row_of(i);
        float sum = 0;
#pragma unroll 4
        for (int e = x; e < value_features; e += ACROSS)
          sum = fma_acc(head.right[row * head.right_row + e], results[row * out.row + e * out.col],
                        sum);
        sum = sum_across(sum);
        if (grad_lse.ptr != nullptr)
          sum -= tile.at.pointer<const float>(grad_lse)[row * grad_lse.row];
        if (x == 0 && first + i < tile.rows) deltas[row * delta.row] = sum;
        own_lse[i] = head.lse[row * head.lse_row];
        own_delta[i] = sum;
      }
    }

    StripReader<Strips, Ring> reader(schedule, states, tile.group);
    const int tiles = ceil_div(reader.strips, STRIPS);
    reader.begin(ring);
    __syncthreads();

    auto copy_other = [&](int number) {
      const StripTile<Strips, Ring> strips(ring, number);
      other_left.copy<THREADS>(TILE_OTHER, features,
                               strips.lines(head.other_left, head.other_left_row));
      other_right.copy<THREADS>(TILE_OTHER, value_features,
                                strips.lines(head.other_right, head.other_right_row));
      if (!BY_QUERIES && threadIdx.x < 2 * TILE_OTHER) {
        const int which = threadIdx.x / TILE_OTHER, line = threadIdx.x % TILE_OTHER;
        const float* from = strips.lines(which ? head.delta : head.lse,
                                         which ? head.delta_row : head.lse_row)(line);
        cp_async<4>(&of_queries[which][line], from, from != nullptr);
      }
    };
    if (tiles > 0) copy_other(0);
    cp_async_commit();

#pragma unroll 1
    for (int number = 0; number < tiles; ++number) {
      cp_async_wait<0>();
      __syncthreads();  // this tile has arrived, what was known of the one before is not needed
      reader.store(ring, number + 2);
      reader.read(number + 3);
      const int slot = number % Ring::SLOTS;
      auto state_of = [&](int i, int j) {
        return ring.state[slot][Tile::block_row(row_of(i))][(x + ACROSS * j) / 8];
      };
      auto other_of = [&](int j) { return ring.key[slot][(x + ACROSS * j) / 8] + x % 8; };

      constexpr int EACH = OWN % ROWS == 0 ? ROWS : 1;  // rows that have one state
      bool any = false;
#pragma unroll
      for (int i = 0; i < ROWS; i += EACH)
#pragma unroll
        for (int j = 0; j < OTHERS; ++j) any |= state_of(i, j) != NOT_STORED;
      if (__any_sync(~0u, any)) {
        float scores[ROWS][OTHERS] = {}, dweights[ROWS][OTHERS] = {};
        dot_rows(scores, left, first, other_left, x);
        dot_rows(dweights, right, first, other_right, x);
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
          for (int j = 0; j < OTHERS; ++j) {
            const int own = tile.first + row_of(i), other = other_of(j), line = x + ACROSS * j;
            const int column = Strips::column(number * STRIPS + line / 8) + x % 8;
            const float acc = scores[i][j];
            float logit = OfPairs::score_of(score, acc, own, other);
            const bool attended =
                OfPairs::attends(score, mask, state_of(i, j), tile.row_in_block(row_of(i)), column,
                                 own, other, logit);
            const auto pair =
                OfPairs::given(score, attended, logit, score.bend(acc), dweights[i][j], own, other,
                               BY_QUERIES ? own_lse[i] : of_queries[0][line],
                               BY_QUERIES ? own_delta[i] : of_queries[1][line]);
            scores[i][j] = pair.dscore;
            dweights[i][j] = pair.weight;
          }
        add_rows(first_sums, scores, staged, first, other_left, x);
        if constexpr (!BY_QUERIES) add_rows(second_sums, dweights, staged, first, other_right, x);
      }
      __syncthreads();  // the other rows have been read
      if (number + 1 < tiles) copy_other(number + 1);
      cp_async_commit();
    }
    cp_async_wait<0>();
  }

  tile.enter(first_head, matrices, batch, problem);
  T* const first_to = tile.at.pointer<T>(first_gradient);
  T* const second_to = BY_QUERIES ? nullptr : tile.at.pointer<T>(second_gradient);
  unsigned again =
      store_rows(first_to, first_gradient, features, first_sums, score_args.scale, tile, first, x);
  if constexpr (!BY_QUERIES)
    again |=
        store_rows(second_to, second_gradient, value_features, second_sums, 1.0f, tile, first, x);
  if (!again) return;
  __syncwarp();  // behind what was stored, delta too

  const PlainGradient<BY_QUERIES, INDEX> plain = {
      operands, matrices, first_gradient, second_gradient, batch,      schedule,
      states,   bits,     problem,        score_args,      first_head, shares};
  plain.rows<T, TileScore, Mask, OTHER, DROPOUT>(again, tile, threadIdx.x / 32 * (2 * ROWS));
}
