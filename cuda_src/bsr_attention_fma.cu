// Attention over a block mask in full precision: float32 and float64 by fused multiply-adds of
// register tiles.
//
// bsr_attention_simt.cu, to be read first, says what is computed. Here a thread block takes TILE_Q
// queries of one head (common/query_tile.cuh) and walks the keys of its group in tiles of TILE_K,
// which are copied to shared memory. A thread has ROWS rows of a tile: KEYS of their scores, every
// ACROSS-th, and then VALUE_FEATURES / ACROSS of their sums over the values. In between the rows'
// weights go through shared memory, where the keys were.
//
// Only blocks that a row of the group has are copied. A warp leaves out tiles in which none of its
// rows has a block. Rows whose sums are not numbers are computed again (common/attention_row.cuh).
//
//   -DT=f32|f64
//   -DOUT, -DINDEX, -DMASK, -DSOFTCAP, -DSLOPES, -DSINKS   as in bsr_attention_simt.cu
//   -DDROPOUT=0|1     there is dropout
//   -DBM, -DBK        size of a block
//   -DTILE_K          keys of a tile: 32 or 64
//   -DBLOCKS          thread blocks of a multiprocessor, at least
//   -DFEATURES        columns of query and key, rounded up: a multiple of 16 bytes
//   -DVALUE_FEATURES  columns of value, rounded up: a multiple of 256 bytes
#include "common/attention_row.cuh"
#include "common/ceil_div.cuh"
#include "common/normalizer.cuh"
#include "common/online_softmax.cuh"
#include "common/padded_rows.cuh"
#include "common/strip_ring.cuh"

using namespace sparsegpu;

constexpr int ACROSS = 16, DOWN = 8, THREADS = ACROSS * DOWN;
constexpr int PIECE = Vector<T>::SIZE;
constexpr int ROWS = 32 / sizeof(T), KEYS = TILE_K / ACROSS;
constexpr int TILE_Q = DOWN * ROWS, STRIPS = TILE_K / 8;
constexpr int PANEL = ACROSS * PIECE, PANELS = VALUE_FEATURES / PANEL;
typedef QueryTile<BM, TILE_Q> Tile;
typedef KeyStrips<BK> Strips;
typedef KernelScore<T> TileScore;
typedef TileMask<MASK, BM, BK, TileScore> Mask;
typedef StripRing<INDEX, STRIPS, Tile::ROWS> Ring;
static_assert(STRIPS * Tile::ROWS <= THREADS, "a thread for each strip and block row");
static_assert(FEATURES % PIECE == 0 && VALUE_FEATURES % PANEL == 0, "whole vectors and panels");

typedef PaddedRows<T, FEATURES> KeyRows;
typedef PaddedRows<T, VALUE_FEATURES> ValueRows;
typedef PaddedRows<T, TILE_K> WeightRows;
constexpr int QUERIES = TILE_Q * KeyRows::LENGTH;
constexpr int KEYS_OR_WEIGHTS = TILE_K * KeyRows::LENGTH > TILE_Q* WeightRows::LENGTH
                                    ? TILE_K * KeyRows::LENGTH
                                    : TILE_Q * WeightRows::LENGTH;

// Combine what the lanes that share a row have.
template <typename Combine>
__device__ __forceinline__ T across(T x, Combine combine) {
#pragma unroll
  for (int apart = 1; apart < ACROSS; apart *= 2) x = combine(x, __shfl_xor_sync(~0u, x, apart));
  return x;
}
__device__ __forceinline__ T maximum(T x, T y) {
  return y > x ? y : x;  // x, if y is a NaN
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    bsr_attention_fma(const __grid_constant__ View out, const __grid_constant__ View lse,
                      const __grid_constant__ View query, const __grid_constant__ View key,
                      const __grid_constant__ View value, const __grid_constant__ View matrices,
                      const __grid_constant__ View sinks, const __grid_constant__ Batch batch,
                      const __grid_constant__ RowGroups<INDEX> schedule, const INDEX* states,
                      const unsigned* bits, const __grid_constant__ AttentionProblem problem,
                      const __grid_constant__ ScoreArgs<T> score_args) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ Ring ring;
  T* const memory = reinterpret_cast<T*>(dynamic);
  const KeyRows queries = {memory}, keys = {memory + QUERIES};
  const WeightRows weights = {memory + QUERIES};
  const ValueRows values = {memory + QUERIES + KEYS_OR_WEIGHTS};
  const int x = threadIdx.x % ACROSS;
  const int first = threadIdx.x / ACROSS * ROWS;  // row of the tile

  const Tile tile(tile_in_order<Tile::SLICES>(blockIdx.x, problem), schedule, matrices, batch,
                  problem);
  const TileScore score(score_args, tile.at, tile.head);
  const Mask mask(score, bits, tile.matrix * problem.nnzb);
  const HeadOperands<T> head(tile.at, query, key, value, problem.features, problem.value_features);
  // A thread's rows behind the last one repeat it, and are not stored.
  auto row_of = [&](int i) { return min(first + i, tile.rows - 1); };

  queries.copy<THREADS>(TILE_Q, head.features, tile.lines(head.query, head.query_row));
  StripReader<Strips, Ring> reader(schedule, states, tile.group);
  const int tiles = ceil_div(reader.strips, STRIPS);
  reader.begin(ring);
  __syncthreads();

  auto copy_keys = [&](int number) {
    const StripTile<Strips, Ring> strips(ring, number);
    keys.copy<THREADS>(TILE_K, head.features, strips.lines(head.key, head.key_row));
    values.copy<THREADS>(TILE_K, head.value_features, strips.lines(head.value, head.value_row));
  };
  if (tiles > 0) copy_keys(0);
  cp_async_commit();

  RunningMaximum<T> maxima[ROWS];
  T total[ROWS] = {}, sums[ROWS][PANELS * PIECE] = {};  // total: of the thread's keys

  for (int number = 0; number < tiles; ++number) {
    cp_async_wait<0>();
    __syncthreads();  // this tile has arrived, what was known of the one before is not needed
    reader.store(ring, number + 2);
    reader.read(number + 3);
    const int slot = number % Ring::SLOTS;
    auto state_of = [&](int i, int j) {
      return ring.state[slot][Tile::block_row(row_of(i))][(x + ACROSS * j) / 8];
    };
    auto key_of = [&](int j) { return ring.key[slot][(x + ACROSS * j) / 8] + x % 8; };

    constexpr int EACH = BM % ROWS == 0 ? ROWS : 1;  // rows that have one state
    bool any = false, whole = BK % 8 == 0;
#pragma unroll
    for (int i = 0; i < ROWS; i += EACH) {
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        const INDEX state = state_of(i, j);
        any |= state != NOT_STORED;
        whole &= state == ALL_TRUE && !(score_args.causal && key_of(j) > tile.first + row_of(i));
      }
    }
    any = __any_sync(~0u, any);
    whole = __all_sync(~0u, whole);

    T scores[ROWS][KEYS] = {};
    if (any) {
#pragma unroll 2
      for (int e = 0; e < FEATURES; e += PIECE) {
        Vector<T> k[KEYS];
#pragma unroll
        for (int j = 0; j < KEYS; ++j) k[j] = keys.vector(x + ACROSS * j, e);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          const Vector<T> q = queries.vector(first + i, e);
#pragma unroll
          for (int j = 0; j < KEYS; ++j)
#pragma unroll
            for (int c = 0; c < PIECE; ++c)
              scores[i][j] = fma_acc(q.at[c], k[j].at[c], scores[i][j]);
        }
      }
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const int query_row = tile.first + row_of(i);
        T highest = maxima[i].top;
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
          const int column = Strips::column(number * STRIPS + (x + ACROSS * j) / 8) + x % 8;
          T logit[1] = {score.score(scores[i][j], query_row, key_of(j))};
          bool attended[1] = {true};
          if (!whole) {
            mask.row(state_of(i, j), tile.row_in_block(row_of(i)), column, attended, logit);
            attended[0] = attended[0] && score.in_order(query_row, key_of(j));
          }
          scores[i][j] = attended[0] ? logit[0] : minus_infinity<T>();
          highest = maximum(highest, scores[i][j]);
        }
        highest = across(highest, maximum);
        const T shrink = maxima[i].raise(highest);
        total[i] *= shrink;
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
          scores[i][j] = exp(scores[i][j] - maxima[i].base());
          total[i] += scores[i][j];
        }
#pragma unroll
        for (int c = 0; c < PANELS * PIECE; ++c) sums[i][c] *= shrink;
      }
    }
    __syncthreads();  // the keys have been read: weights take their place
    if (any) {
#pragma unroll
      for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < KEYS; ++j)
          weights.at[(first + i) * WeightRows::LENGTH + x + ACROSS * j] = scores[i][j];
#pragma unroll 1
      for (int n = 0; DROPOUT && n < ROWS * KEYS; ++n) {
        const int i = n / KEYS, j = n % KEYS;
        T& weight = weights.at[(first + i) * WeightRows::LENGTH + x + ACROSS * j];
        if (!score.keeps(weight != 0, tile.first + row_of(i), key_of(j))) weight = 0;
      }
      __syncwarp();  // a row's threads are of one warp
#pragma unroll 1
      for (int k = 0; k < TILE_K; k += PIECE) {
        Vector<T> weight[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) weight[i] = weights.vector(first + i, k);
#pragma unroll
        for (int c = 0; c < PIECE; ++c)
#pragma unroll
          for (int p = 0; p < PANELS; ++p) {
            const Vector<T> v = values.vector(k + c, p * PANEL + x * PIECE);
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
              for (int n = 0; n < PIECE; ++n)
                sums[i][p * PIECE + n] = fma_acc(weight[i].at[c], v.at[n], sums[i][p * PIECE + n]);
          }
      }
    }
    __syncthreads();  // weights and values have been read
    if (number + 1 < tiles) copy_keys(number + 1);
    cp_async_commit();
  }
  cp_async_wait<0>();

  OUT* const o = tile.at.pointer<OUT>(out);
  const T sink = SINKS ? *tile.at.pointer<const T>(sinks) : minus_infinity<T>();
  unsigned again = 0;  // a bit for each row that the warp has to compute again
  T share[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    total[i] = across(total[i], [](T a, T b) { return a + b; });
    const Normalizer<T, SINKS> normalizer(maxima[i].top, total[i], sink, score_args.kept_scale);
    share[i] = normalizer.share;
    const bool here = first + i < tile.rows;
    const long long row = tile.first + first + i;
    bool number = true;
#pragma unroll
    for (int c = 0; c < PANELS * PIECE; ++c) {
      const int column = c / PIECE * PANEL + x * PIECE + c % PIECE;
      number &= sums[i][c] == sums[i][c];
      if (here && column < head.value_features)
        o[row * out.row + column * out.col] = round_to<OUT>(sums[i][c] * share[i]);
    }
    if (here && lse.ptr != nullptr && x == 0)
      tile.at.pointer<T>(lse)[row * lse.row] = normalizer.lse;
    const unsigned odd = __ballot_sync(~0u, here && !number);
    again |= (odd & 0xffff ? 1u << i : 0) | (odd >> ACROSS ? 1u << (ROWS + i) : 0);
  }
  if (!again) return;
  __syncwarp();  // behind what was stored
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      if (!(again >> (half * ROWS + i) & 1)) continue;
      const int of_tile = __shfl_sync(~0u, first, half * ACROSS) + i;
      const T row_share = __shfl_sync(~0u, share[i], half * ACROSS);
      const T row_top = __shfl_sync(~0u, maxima[i].top, half * ACROSS);
      const long long row = tile.first + of_tile;
      attend_row<BM, BK>(head, schedule, states, Tile::ROWS, schedule.starts[tile.group],
                         schedule.counts[tile.group], Tile::block_row(of_tile),
                         tile.row_in_block(of_tile), int(row), score, mask, row_top,
                         [&](int column, T sum) {
                           o[row * out.row + column * out.col] = round_to<OUT>(sum * row_share);
                         });
    }
  }
}
