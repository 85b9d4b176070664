// Attention of few queries to many keys (decoding: one query a request), from compute
// capability 8.0 on: bfloat16 and float16, block rows of at most 16 queries.
//
// bsr_attention_simt.cu, to be read first, says what is computed, bsr_attention_sm80.cu how tensor
// cores do it. Here memory binds: every key and value is read once and used for a few queries only.
//
// The heads that share a key head are packed: row r of a tile of at most 16 is query r % BM of head
// r / BM, so their keys are read once. A long block row is cut into pieces of as many blocks
// (common/cut_rows.cuh), one a thread block. Its sums go to workspace where a row has several,
// and bsr_attention_decode_reduce.cu merges them in order.
//
// The warps of a thread block take tiles of TILE_K keys of the piece in turn, and each copies its
// own by cp.async, STAGES - 1 tiles ahead: no warp waits for another before the end. What is known
// of the strips of a warp's tiles (common/query_tile.cuh) is spread over its lanes, a strip a lane.
//
//   -DT, -DOUT, -DINDEX, -DMASK, -DSOFTCAP, -DSLOPES, -DDROPOUT, -DFOLD, -DBM, -DBK, -DFEATURES,
//   -DVALUE_FEATURES   as in bsr_attention_sm80.cu
//   -DHEADS            heads of a tile, at most; HEADS * BM <= 16
//   -DTILE_K, -DSTAGES keys of a warp's tile, a multiple of 16, and how many of them it has room
//   for -DWARPS            of a thread block
#include "common/attention_dropout.cuh"
#include "common/attention_mma.cuh"
#include "common/attention_parts.cuh"
#include "common/attention_row.cuh"
#include "common/attention_tile.cuh"
#include "common/ceil_div.cuh"
#include "common/cut_rows.cuh"
#include "ptx/opaque.cuh"

using namespace sparsegpu;

constexpr int THREADS = 32 * WARPS, ROWS = HEADS * BM;
constexpr int STRIPS = TILE_K / 8, SLOTS = STAGES + 1;
typedef KeyStrips<BK> Strips;
typedef KernelScore<float> HeadScore;
typedef TileMask<MASK, BM, BK, HeadScore> Mask;
static_assert(ROWS <= 16, "the rows of a fragment");
static_assert(SLOTS * STRIPS <= 32, "a lane for each strip");
static_assert(!FOLD || (!SOFTCAP && !SLOPES && !Mask::ADDED), "scores are accumulators");

typedef Panels<T, 16, FEATURES> QueryPanels;
typedef Panels<T, TILE_K, FEATURES> KeyPanels;
typedef Panels<T, TILE_K, VALUE_FEATURES> ValuePanels;
constexpr int STAGE_BYTES = KeyPanels::BYTES + ValuePanels::BYTES;
constexpr int WARP_BYTES = STAGES * STAGE_BYTES;
static_assert(WARP_BYTES >= 16 * VALUE_FEATURES * 4, "a warp's sums end up where its keys were");

struct DecodeProblem {
  long long nnzb;
  long long pieces;  // of a head: numbers of common/cut_rows.cuh
  int rows;          // block rows of a matrix
  int length;        // blocks of a piece
  int group;         // heads that share a key head
  int tiles;         // of those heads
  int features, value_features;
};

// A row of a tile: a query of one of its heads.
struct HeadQuery {
  HeadScore score;
  int query;
  __device__ __forceinline__ operator int() const { return query; }
};

// The score of a tile: that of the row's head.
struct RowScore {
  const ScoreArgs<float>& args;
  unsigned dropped;
  __device__ __forceinline__ float score(float acc, const HeadQuery& row, int key) const {
    return row.score.score(acc, row.query, key);
  }
  __device__ __forceinline__ bool in_order(const HeadQuery& row, int key) const {
    return row.score.in_order(row.query, key);
  }
  __device__ __forceinline__ unsigned long long index(const HeadQuery& row, int key) const {
    return row.score.index(row.query, key);
  }
};

// The piece of a block row that a thread block takes, for some heads.
struct Tile {
  long long first_head;
  int rows;
  long long matrix;  // of the pattern
  int block_row;
  int pieces;  // of the block row
  int piece;
  long long first_entry;
  int entries;

  __device__ __forceinline__ Tile(long long item, const RowGroups<INDEX>& schedule,
                                  const View& matrices, const Batch& batch,
                                  const DecodeProblem& problem) {
    const long long of_heads = item / problem.pieces, number = item % problem.pieces;
    const int among = int(of_heads % problem.tiles) * HEADS;
    first_head = of_heads / problem.tiles * problem.group + among;
    rows = min(HEADS, problem.group - among) * BM;
    matrix = BatchIndex(batch, first_head).offset(matrices);
    const long long first_row = matrix * problem.rows;
    const CutRows<INDEX> in(schedule, first_row, problem.rows, problem.length);
    block_row = in.row_of(number);
    pieces = in.count(block_row);
    piece = int(number - in.first(block_row));
    const int before = piece * problem.length;
    first_entry = in.starts[block_row] + before;
    entries = min(problem.length, in.counts[block_row] - before);
  }
  __device__ __forceinline__ long long head(int row) const { return first_head + row / BM; }
  __device__ __forceinline__ int query(int row) const { return block_row * BM + row % BM; }
};

// The two rows of a tile that a lane has: g and g + 8.
struct LaneRows {
  HeadQuery query[2];
  int row_in_block[2];

  __device__ __forceinline__ LaneRows(const Tile& tile, const ScoreArgs<float>& args,
                                      const Batch& batch)
      : query{of(tile, args, batch, row(tile, 0)), of(tile, args, batch, row(tile, 1))},
        row_in_block{row(tile, 0) % BM, row(tile, 1) % BM} {}

 private:
  static __device__ __forceinline__ int row(const Tile& tile, int r) {
    return min(int(threadIdx.x % 32) / 4 + 8 * r, tile.rows - 1);
  }
  static __device__ __forceinline__ HeadQuery of(const Tile& tile, const ScoreArgs<float>& args,
                                                 const Batch& batch, int row) {
    const long long head = tile.head(row);
    return {HeadScore(args, batch, head, head), tile.query(row)};
  }
};

// A warp's copies of strips of keys or values, to panels.
template <typename PANELS>
struct StripCopy {
  static constexpr int ACROSS = PANELS::PANEL / 8, DOWN = 32 / ACROSS, PASSES = 8 / DOWN;
  const T* from;  // what the lane copies of key 0 in the first pass
  long long row;
  int line, column, columns;
  unsigned to[PASSES];  // where, in a tile at 0

  __device__ __forceinline__ StripCopy(const T* base, long long row, int columns)
      : row(row), columns(columns) {
    line = threadIdx.x % 32 / ACROSS;
    column = threadIdx.x % ACROSS * 8;
    from = opaque(base + line * row + column);
#pragma unroll
    for (int i = 0; i < PASSES; ++i) to[i] = PANELS::address(0, line + i * DOWN, column);
  }

  // Copy strip j of a tile, `count` keys from `first` on, and zeros behind them.
  __device__ __forceinline__ void operator()(unsigned tile, int j, int first, int count) const {
    const T* const source = from + first * row;
#pragma unroll
    for (int i = 0; i < PASSES; ++i)
#pragma unroll
      for (int c = 0; c < PANELS::WIDTH; c += PANELS::PANEL)
        cp_async<16>(tile + PANELS::advance(to[i], 8 * j, c), source + i * DOWN * row + c,
                     line + i * DOWN < count && column + c < columns);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_attention_decode(const __grid_constant__ View out, const __grid_constant__ View lse,
                         const __grid_constant__ View query, const __grid_constant__ View key,
                         const __grid_constant__ View value, const __grid_constant__ View matrices,
                         const __grid_constant__ View sinks, const __grid_constant__ Batch batch,
                         const __grid_constant__ RowGroups<INDEX> schedule, const INDEX* states,
                         const unsigned* bits, const __grid_constant__ DecodeProblem problem,
                         const __grid_constant__ ScoreArgs<float> score_args, float* parts) {
  extern __shared__ __align__(1024) unsigned char dynamic[];
  __shared__ float tops[WARPS][16], totals[WARPS][16];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned stages = shared_address(dynamic) + warp * WARP_BYTES;
  const unsigned query_tile = shared_address(dynamic) + WARPS * WARP_BYTES;

  const Tile tile(blockIdx.x, schedule, matrices, batch, problem);
  if (tile.piece >= tile.pieces) return;
  const BatchIndex at(batch, tile.first_head);
  const T* const keys = at.pointer<const T>(key);
  const T* const values = at.pointer<const T>(value);
  const LaneRows rows(tile, score_args, batch);
  const RowScore score = {score_args, rows.query[0].score.dropped};
  const Mask mask(rows.query[0].score, bits, tile.matrix * problem.nnzb);

  copy_lines<QueryPanels, THREADS>(query_tile, problem.features, [&](int row) -> const T* {
    if (row >= tile.rows) return nullptr;
    return batch_ptr<const T>(query, batch, tile.head(row)) + tile.query(row) * query.row;
  });

  // Lane SLOT * STRIPS + j knows strip j of the tile in that slot.
  const int strips = tile.entries * Strips::EACH;
  const int tiles = ceil_div(strips, STRIPS * WARPS);  // of a warp, at most
  INDEX known_state = NOT_STORED;
  int known_key = -1;
  auto first_strip = [&](int number) { return (number * WARPS + warp) * STRIPS; };
  auto read = [&](int number) {
    if (lane / STRIPS != number % SLOTS) return;
    const int s = first_strip(number) + lane % STRIPS;
    const long long entry = tile.first_entry + Strips::entry(s);
    known_state = s < strips ? states[entry] : INDEX(NOT_STORED);
    known_key = s < strips ? schedule.columns[entry] * BK + Strips::column(s) : -1;
  };
  auto strip = [&](int number, int j) {
    const int from = number % SLOTS * STRIPS + j;
    const INDEX state = __shfl_sync(~0u, known_state, from);
    return Strip<INDEX>{
        {state, state}, __shfl_sync(~0u, known_key, from), Strips::column(first_strip(number) + j)};
  };
  const StripCopy<KeyPanels> copy_keys(keys, key.row, problem.features);
  const StripCopy<ValuePanels> copy_values(values, value.row, problem.value_features);
  auto copy = [&](int number) {
    const unsigned to = stages + number % STAGES * STAGE_BYTES;
#pragma unroll
    for (int j = 0; j < STRIPS; ++j) {
      const int first = __shfl_sync(~0u, known_key, number % SLOTS * STRIPS + j);
      const int count = first < 0 ? 0 : Strips::width(first_strip(number) + j);
      copy_keys(to, j, first, count);
      copy_values(to + KeyPanels::BYTES, j, first, count);
    }
  };
#pragma unroll
  for (int number = 0; number < STAGES; ++number) read(number);
#pragma unroll
  for (int number = 0; number < STAGES - 1; ++number) {
    copy(number);
    cp_async_commit();
  }

  OnlineSoftmax softmax(FOLD, score_args.scale);
  float sums[VALUE_FEATURES / 2] = {};
  WarpAttention<QueryPanels, KeyPanels, ValuePanels> products(query_tile, 0);
  cp_async_wait<STAGES - 2>();
  __syncthreads();  // the queries, which all threads copied, with their first group
  products.load_queries();

  for (int number = 0; number < tiles; ++number) {
    cp_async_wait<STAGES - 2>();
    __syncwarp();  // this tile has arrived, the one before has been read
    if (number + STAGES - 1 < tiles) copy(number + STAGES - 1);
    cp_async_commit();
    read(number + STAGES);

    // Whether any of the tile's queries has to look at the lane's strip, and whether all see it.
    const bool mine = lane / STRIPS == number % SLOTS;
    const int first_query = tile.query(0), last_query = tile.query(BM - 1);
    const bool any =
        mine && known_state != NOT_STORED && !(score_args.causal && known_key > last_query);
    const bool all = BK % 8 == 0 && known_state == ALL_TRUE &&
                     !(score_args.causal && known_key + 7 > first_query);
    if (!__any_sync(~0u, any)) continue;
    const bool whole = __all_sync(~0u, all || !mine);

    const unsigned at_keys = stages + number % STAGES * STAGE_BYTES;
    const unsigned at_values = at_keys + KeyPanels::BYTES;
    float scores[STRIPS * 4] = {};
    products.scores(scores, at_keys);

    auto here = [&](int j) { return strip(number, j); };
    score_strips<FOLD>(scores, 0, STRIPS, rows, score, mask, whole, here);
    float shrink[2];
    softmax(scores, shrink);
    softmax.rescale(sums, shrink);
    if (DROPOUT) drop_weights<BK>(scores, rows, score, here);

    products.sums(sums, scores, at_values);
  }
  cp_async_wait<0>();
  __syncwarp();  // the warp's keys and values have been read: its sums take their place

  softmax.finish();
  float* const all_sums = reinterpret_cast<float*>(dynamic);
  auto sums_of = [&](int w, int row) {
    return all_sums + w * (WARP_BYTES / 4) + row * VALUE_FEATURES;
  };
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
#pragma unroll
    for (int n = 0; n < VALUE_FEATURES / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        sums_of(warp, row)[8 * n + lane % 4 * 2 + i] = sums[4 * n + 2 * r + i];
    if (lane % 4 == 0) {
      tops[warp][row] = softmax.logit(r);
      totals[warp][row] = softmax.sum[r];
    }
  }
  __syncthreads();

  // A warp merges what the warps have of a row, in their order.
#pragma unroll 1
  for (int row = warp; row < tile.rows; row += WARPS) {
    float top = minus_infinity<float>(), total = 0, weights[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; ++w) top = fmaxf(top, tops[w][row]);
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      weights[w] = rescaled(tops[w][row], top);
      total += totals[w][row] * weights[w];
    }
    const long long head = tile.head(row);
    const int query_row = tile.query(row);
    const PartialRow<float> part = {parts + (blockIdx.x * (long long)ROWS + row) *
                                                (PART_HEADER + VALUE_FEATURES)};
    const bool merged = tile.pieces > 1;  // by bsr_attention_decode_reduce.cu
    float share = 1;
    if (merged) {
      if (lane == 0) part.top() = top, part.sum() = total;
    } else {
      const float sink =
          sinks.ptr ? *batch_ptr<const float>(sinks, batch, head) : minus_infinity<float>();
      const Normalizer<float> normalizer(top, total, sink, score_args.kept_scale);
      share = normalizer.share;
      if (lane == 0 && lse.ptr)
        batch_ptr<float>(lse, batch, head)[query_row * lse.row] = normalizer.lse;
    }
    OUT* const o = batch_ptr<OUT>(out, batch, head) + query_row * out.row;
    auto put = [&](int column, float x) {
      if (merged)
        part.column(column) = x;
      else
        o[column * out.col] = round_to<OUT>(x * share);
    };
    bool number = true;
#pragma unroll 1
    for (int column = lane; column < problem.value_features; column += 32) {
      float x = 0;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) x = fmaf(sums_of(w, row)[column], weights[w], x);
      number &= x == x;
      put(column, x);
    }
    if (__all_sync(~0u, number)) continue;
    const HeadOperands<T> operands(BatchIndex(batch, head), query, key, value, problem.features,
                                   problem.value_features);
    attend_row<BM, BK>(operands, schedule, states, 1, tile.first_entry, tile.entries, 0, row % BM,
                       query_row, HeadScore(score_args, batch, head, head), mask, top, put);
  }
}
