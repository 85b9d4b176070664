// Attention over a block mask in float64 on tensor cores, from compute capability 8.0 on.
//
// bsr_attention_sm80.cu, to be read first, says how: sixteen queries a warp, keys and values of the
// next tile copied while this one is multiplied, scores and weights in registers. Here an operand
// of a product is one float64 a register pair (ptx/mma.cuh, m16n8k8), and which column of an
// operand is called k is free. With g = lane / 4 and t = lane % 4,
//
//   scores = query @ key.T     k = t and t + 4 stand for features 2t and 2t + 1 of eight, so that a
//                              lane reads both as one vector;
//   sums += weights @ value    k = t and t + 4 stand for keys 2t and 2t + 1 of eight, whose weights
//                              are where the first product has left their scores.
//
// The query stays in shared memory: registers hold the sums, and weights on their way.
//
//   -DT=f64; -DOUT, -DINDEX, -DMASK, -DSOFTCAP, -DSLOPES, -DSINKS   as in bsr_attention_simt.cu
//   -DBM, -DBK                     size of a block
//   -DTILE_Q, -DTILE_K             queries and keys of a tile: multiples of 16 and of 8
//   -DFEATURES, -DVALUE_FEATURES   columns of query and key, and of value, rounded up: multiples
//                                  of 16
//   -DBLOCKS                       thread blocks a multiprocessor is to hold, at least
//   -DDROPOUT=0|1                  there is dropout
//   -DFOLD=0|1                     1: scores are accumulators times a positive scale
#include "common/attention_dropout.cuh"
#include "common/attention_store.cuh"
#include "common/ceil_div.cuh"
#include "common/strip_ring.cuh"
#include "ptx/mma.cuh"
#include "ptx/opaque.cuh"

using namespace sparsegpu;

constexpr int WARPS = TILE_Q / 16, THREADS = 32 * WARPS;
constexpr int STRIPS = TILE_K / 8;
typedef QueryTile<BM, TILE_Q> Tile;
typedef KeyStrips<BK> Strips;
typedef KernelScore<T> TileScore;
typedef TileMask<MASK, BM, BK, TileScore> Mask;
constexpr int ROWS = Tile::ROWS;
static_assert(STRIPS * ROWS <= THREADS, "a thread for each strip and block row");
static_assert(FEATURES % 16 == 0 && VALUE_FEATURES % 16 == 0, "whole lines of 128 bytes");
static_assert(!FOLD || (!SOFTCAP && !SLOPES && !Mask::ADDED), "scores are accumulators");

typedef StripRing<INDEX, STRIPS, ROWS> Ring;

// LINES rows of COLUMNS elements in shared memory. The vectors of 16 bytes of every 128 are
// permuted by an XOR with a number of the row, so that lanes that are served at once read different
// banks:
//   KEYS     vectors t of rows g and g + 1
//   !KEYS    two vectors of each of the rows 2t, or 2t + 1
template <int LINES, int COLUMNS, bool KEYS>
struct Rows {
  static constexpr int PITCH = COLUMNS * 8, BYTES = LINES * PITCH;

  static __device__ __forceinline__ int offset(int line, int vector) {
    return line * PITCH + (vector ^ (KEYS ? line % 2 * 4 : line / 2 % 4 * 2)) * 16;
  }
  // Copy the rows: `line(i)` says where row i lies (null: zeros), of whose columns there are
  // `columns`.
  template <typename Line>
  static __device__ __forceinline__ void copy(unsigned char* to, int columns, Line line) {
    constexpr int ACROSS = 8, DOWN = THREADS / ACROSS;
    static_assert(DOWN % 8 == 0, "a thread's rows are permuted alike");
    const int first = threadIdx.x / ACROSS, vector = threadIdx.x % ACROSS;
    to += offset(first, vector);
#pragma unroll
    for (int i = 0; i < LINES; i += DOWN) {
      if (LINES % DOWN != 0 && first + i >= LINES) break;
      const T* const from = line(first + i);
#pragma unroll
      for (int c = 0; c < COLUMNS; c += 2 * ACROSS)
        cp_async<16>(to + i * PITCH + c * 8, from + 2 * vector + c,
                     from != nullptr && 2 * vector + c < columns);
    }
  }
};
typedef Rows<TILE_Q, FEATURES, true> QueryRows;
typedef Rows<TILE_K, FEATURES, true> KeyRows;
typedef Rows<TILE_K, VALUE_FEATURES, false> ValueRows;
constexpr int STAGE_BYTES = KeyRows::BYTES + ValueRows::BYTES;

// What a lane reads of eight rows: two elements of row g for eight features from a multiple of
// eight on, or one of rows 2t and 2t + 1 for eight columns. The permutation of even and odd eights
// differs, so these have an address each.
struct KeyLane {
  int of[2];
  __device__ __forceinline__ KeyLane(int g, int t)
      : of{KeyRows::offset(g, t), KeyRows::offset(g, 4 + t)} {}
  __device__ __forceinline__ double2 at(const unsigned char* rows, int k) const {
    return *reinterpret_cast<const double2*>(rows + of[k % 2] + k / 2 * 128);
  }
};
struct ValueLane {
  int of[2];
  __device__ __forceinline__ ValueLane(int g, int t)
      : of{ValueRows::offset(2 * t, g / 2) + g % 2 * 8,
           ValueRows::offset(2 * t, 4 + g / 2) + g % 2 * 8} {}
  __device__ __forceinline__ f64 at(const unsigned char* rows, int i, int n) const {
    return *reinterpret_cast<const f64*>(rows + of[n % 2] + n / 2 * 128 + i * ValueRows::PITCH);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    bsr_attention_f64(const __grid_constant__ View out, const __grid_constant__ View lse,
                      const __grid_constant__ View query, const __grid_constant__ View key,
                      const __grid_constant__ View value, const __grid_constant__ View matrices,
                      const __grid_constant__ View sinks, const __grid_constant__ Batch batch,
                      const __grid_constant__ RowGroups<INDEX> schedule, const INDEX* states,
                      const unsigned* bits, const __grid_constant__ AttentionProblem problem,
                      const __grid_constant__ ScoreArgs<T> score_args) {
  extern __shared__ __align__(128) unsigned char dynamic[];
  __shared__ Ring ring;
  unsigned char* const query_rows = dynamic + 2 * STAGE_BYTES;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

  const Tile tile(tile_in_order<Tile::SLICES>(blockIdx.x, problem), schedule, matrices, batch,
                  problem);
  const TileScore score(score_args, tile.at, tile.head);
  const Mask mask(score, bits, tile.matrix * problem.nnzb);
  const HeadOperands<T> head(tile.at, query, key, value, problem.features, problem.value_features);

  QueryRows::copy(query_rows, head.features, tile.lines(head.query, head.query_row));

  StripReader<Strips, Ring> reader(schedule, states, tile.group);
  const int tiles = ceil_div(reader.strips, STRIPS);
  reader.begin(ring);
  __syncthreads();

  auto copy_keys = [&](int number) {
    unsigned char* const to = dynamic + number % 2 * STAGE_BYTES;
    const StripTile<Strips, Ring> strips(ring, number);
    KeyRows::copy(to, head.features, strips.lines(head.key, head.key_row));
    ValueRows::copy(to + KeyRows::BYTES, head.value_features,
                    strips.lines(head.value, head.value_row));
  };
  if (tiles > 0) copy_keys(0);
  cp_async_commit();

  const LaneQueries<Tile> rows(tile, 16 * warp);
  OnlineSoftmax softmax(FOLD, score_args.scale);
  T sums[VALUE_FEATURES / 2] = {};
  const KeyLane key_lane(g, t);
  const ValueLane value_lane(g, t);
  const unsigned char* const queries = query_rows + 16 * warp * QueryRows::PITCH;

  for (int number = 0; number < tiles; ++number) {
    cp_async_wait<0>();
    __syncthreads();  // this tile has arrived, the one before has been read
    if (number + 1 < tiles) copy_keys(number + 1);
    cp_async_commit();
    reader.store(ring, number + 2);
    reader.read(number + 3);

    const StripTile<Strips, Ring> strips(ring, number);
    auto strip = [&](int j) { return strips.strip(j, rows); };
    bool any = false, whole = BK % 8 == 0;  // of the lane's rows
#pragma unroll
    for (int j = 0; j < STRIPS; ++j) {
      any |= strip(j).any(rows, score_args.causal);
      whole &= strip(j).all(rows, score_args.causal);
    }
    if (!__any_sync(~0u, any)) continue;
    whole = __all_sync(~0u, whole);

    const unsigned char* const keys = dynamic + number % 2 * STAGE_BYTES;
    const unsigned char* const values = keys + KeyRows::BYTES;
    T scores[STRIPS * 4] = {};
#pragma unroll 4
    for (int k = 0; k < FEATURES / 8; ++k) {
      const double2 top = key_lane.at(queries, k);
      const double2 bottom = key_lane.at(queries + 8 * QueryRows::PITCH, k);
      const T a[4] = {top.x, bottom.x, top.y, bottom.y};
#pragma unroll
      for (int j = 0; j < STRIPS; ++j) {
        const double2 two = key_lane.at(keys + 8 * j * KeyRows::PITCH, k);
        const T b[2] = {two.x, two.y};
        mma_f64_m16n8k8(reinterpret_cast<T(&)[4]>(scores[4 * j]), a, b);
      }
    }

    score_strips<FOLD>(scores, 0, STRIPS, rows, score, mask, whole, strip);
    T shrink[2];
    softmax(scores, shrink);
    softmax.rescale(sums, shrink);
    if (DROPOUT) drop_weights<BK>(scores, rows, score, strip);

#pragma unroll
    for (int j = 0; j < STRIPS; ++j) {
      const T* const weight = &scores[4 * j];
      const T a[4] = {weight[0], weight[2], weight[1], weight[3]};
      const unsigned char* const eight = values + 8 * j * ValueRows::PITCH;
#pragma unroll
      for (int n = 0; n < VALUE_FEATURES / 8; ++n) {
        const T b[2] = {value_lane.at(eight, 0, n), value_lane.at(eight, 1, n)};
        mma_f64_m16n8k8(reinterpret_cast<T(&)[4]>(sums[4 * n]), a, b);
      }
    }
  }
  cp_async_wait<0>();

  // Where the sums go is found again: registers are full.
  const Tile to(tile_in_order<Tile::SLICES>(opaque(blockIdx.x), problem), schedule, matrices, batch,
                problem);
  const LaneQueries<Tile> to_rows(to, 16 * opaque(warp));
  const TileScore to_score(score_args, to.at, to.head);
  const Mask to_mask(to_score, bits, to.matrix * problem.nnzb);
  auto operands = [&] {
    return HeadOperands<T>(to.at, query, key, value, problem.features, problem.value_features);
  };
  const T sink = SINKS ? *to.at.pointer<const T>(sinks) : minus_infinity<T>();
  store_rows<BM, BK>(
      sums, softmax, to, to_rows, operands, schedule, states, to_score, to_mask,
      RowOutputs<OUT, T, SINKS>(to, out, lse, sink, problem.value_features, score_args.kept_scale));
}
