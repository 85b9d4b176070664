// Attention over a block mask with mma.sync, from compute capability 8.0 on: bfloat16, float16 and
// float32 as TF32.
//
// bsr_attention_simt.cu, to be read first, says what is computed. Here a thread block takes TILE_Q
// queries of one head (common/query_tile.cuh), sixteen a warp, and walks the keys of its group in
// tiles of TILE_K: the next tile of keys and values is copied while this one is multiplied.
//
//   scores = query @ key.T         mma; queries of up to 256 bytes stay in registers, as fragments
//   weights = softmax(scores)      in registers (common/online_softmax.cuh)
//   sums += weights @ value        mma; the accumulators of the scores are its left operand
//
// Only blocks that a row of the group has are copied. A warp leaves out tiles in which none of its
// rows has a block. Rows whose sums are not numbers are computed again (common/attention_row.cuh).
//
// Tiles in shared memory are panels of 64 or 32 columns, swizzled as TMA swizzles
// (ptx/bulk_tensor.cuh).
//
//   -DT, -DOUT, -DINDEX, -DMASK, -DSOFTCAP, -DSLOPES, -DSINKS   as in bsr_attention_simt.cu
//   -DBM, -DBK                     size of a block
//   -DTILE_Q=64|128, -DTILE_K      queries and keys of a tile; TILE_K: a multiple of 16
//   -DFEATURES, -DVALUE_FEATURES   columns of query and key, and of value, rounded up: multiples
//                                  of 32
//   -DBLOCKS                       thread blocks a multiprocessor is to hold, at least
//   -DDROPOUT=0|1                  there is dropout
//   -DFOLD=0|1                     1: scores are accumulators times a positive scale
//   -DSPLIT_KV=0|1                 1: of groups with many more keys than others a tile is a split
//                                  of these; bsr_attention_reduce.cu merges what it leaves
#include "common/attention_dropout.cuh"
#include "common/attention_mma.cuh"
#include "common/attention_store.cuh"
#include "common/ceil_div.cuh"

using namespace sparsegpu;

constexpr int WARPS = TILE_Q / 16, THREADS = 32 * WARPS;
constexpr int STRIPS = TILE_K / 8;
typedef QueryTile<BM, TILE_Q, SPLIT_KV> Tile;
typedef KeyStrips<BK> Strips;
typedef KernelScore<float> TileScore;
typedef TileMask<MASK, BM, BK, TileScore> Mask;
constexpr int ROWS = Tile::ROWS;
static_assert(STRIPS * ROWS <= THREADS, "a thread for each strip and block row");
static_assert(!FOLD || (!SOFTCAP && !SLOPES && !Mask::ADDED), "scores are accumulators");

typedef StripRing<INDEX, STRIPS, ROWS> Ring;
typedef Panels<T, TILE_Q, FEATURES> QueryPanels;
typedef Panels<T, TILE_K, FEATURES> KeyPanels;
typedef Panels<T, TILE_K, VALUE_FEATURES> ValuePanels;
constexpr int STAGE_BYTES = KeyPanels::BYTES + ValuePanels::BYTES;
// Bytes of a query's row that a warp may hold in registers beside its sums.
constexpr int HELD = VALUE_FEATURES <= 192 ? 256 : 0;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    bsr_attention_sm80(const __grid_constant__ View out, const __grid_constant__ View lse,
                       const __grid_constant__ View query, const __grid_constant__ View key,
                       const __grid_constant__ View value, const __grid_constant__ View matrices,
                       const __grid_constant__ View sinks, const __grid_constant__ Batch batch,
                       const __grid_constant__ RowGroups<INDEX> schedule, const INDEX* states,
                       const unsigned* bits, const __grid_constant__ AttentionProblem problem,
                       const __grid_constant__ ScoreArgs<float> score_args, float* parts,
                       long long splits) {
  extern __shared__ __align__(1024) unsigned char dynamic[];
  __shared__ Ring ring;
  const unsigned stages = shared_address(dynamic);
  const unsigned query_tile = stages + 2 * STAGE_BYTES;
  const int warp = threadIdx.x / 32;

  const Tile tile(tile_in_order<Tile::SLICES>(blockIdx.x, problem), schedule, matrices, batch,
                  problem);
  const TileScore score(score_args, tile.at, tile.head);
  const Mask mask(score, bits, tile.matrix * problem.nnzb);
  const HeadOperands<T> head(tile.at, query, key, value, problem.features, problem.value_features);

  copy_lines<QueryPanels, THREADS>(query_tile, head.features,
                                   tile.lines(head.query, head.query_row));
  cp_async_commit();

  StripReader<Strips, Ring> reader(schedule, states, tile.group);
  const int tiles = ceil_div(reader.strips, STRIPS);
  reader.begin(ring);
  __syncthreads();

  auto copy_keys = [&](int number) {
    const unsigned to = stages + number % 2 * STAGE_BYTES;
    const StripTile<Strips, Ring> strips(ring, number);
    copy_lines<KeyPanels, THREADS>(to, head.features, strips.lines(head.key, head.key_row));
    copy_lines<ValuePanels, THREADS>(to + KeyPanels::BYTES, head.value_features,
                                     strips.lines(head.value, head.value_row));
  };
  if (tiles > 0) copy_keys(0);
  cp_async_commit();

  const LaneQueries<Tile> rows(tile, 16 * warp);
  OnlineSoftmax softmax(FOLD, score_args.scale);
  const float sink = SINKS ? *tile.at.pointer<const float>(sinks) : minus_infinity<float>();
  float sums[VALUE_FEATURES / 2] = {};
  WarpAttention<QueryPanels, KeyPanels, ValuePanels, HELD> products(query_tile, 16 * warp);

  for (int number = 0; number < tiles; ++number) {
    cp_async_wait<0>();
    __syncthreads();  // this tile has arrived, the one before has been read
    if (number == 0) products.load_queries();
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

    const unsigned keys = stages + number % 2 * STAGE_BYTES, values = keys + KeyPanels::BYTES;
    float scores[STRIPS * 4] = {};
    products.scores(scores, keys);

    score_strips<FOLD>(scores, 0, STRIPS, rows, score, mask, whole, strip);
    float shrink[2];
    softmax(scores, shrink);
    softmax.rescale(sums, shrink);
    if (DROPOUT) drop_weights<BK>(scores, rows, score, strip);

    products.sums(sums, scores, values);
  }
  cp_async_wait<0>();

  auto operands = [&] { return head; };
  store_tile_rows<OUT, SINKS, BM, BK>(sums, softmax, tile, rows, operands, problem.value_features,
                                      schedule, states, score, mask, out, lse, sink, parts, splits);
}
