// Gradients of attention's query, or of its key and value, with mma.sync: bfloat16, float16
// and float32 as TF32.
//
// bsr_attention_backward_simt.cu, to be read first, says what is computed; bsr_attention_sm80.cu
// how tiles are copied. A thread block takes TILE_OWN rows of the operand that the gradient is of,
// sixteen a warp, and walks the rows of the other side in tiles of TILE_OTHER. For the gradient of
// query it walks the pattern, for those of key and value its transpose (`schedule`); states of
// blocks are those of the mask in either case. common/attention_gradients.cuh names the operands
// and has the formulas.
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
#include "common/attention_gradients.cuh"
#include "common/attention_mma.cuh"
#include "common/ceil_div.cuh"

using namespace sparsegpu;

constexpr bool BY_QUERIES = Gradient::GRADIENT == Gradient::query;
constexpr int OWN = BY_QUERIES ? BM : BK, OTHER = BY_QUERIES ? BK : BM;
constexpr int WARPS = TILE_OWN / 16, THREADS = 32 * WARPS, STRIPS = TILE_OTHER / 8;
typedef QueryTile<OWN, TILE_OWN> Tile;
typedef KeyStrips<OTHER> Strips;
typedef KernelScore<float> TileScore;
typedef TileMask<MASK, BM, BK, TileScore> Mask;
typedef Pairs<BY_QUERIES, OTHER, DROPOUT> OfPairs;
typedef StripRing<INDEX, STRIPS, Tile::ROWS> Ring;
typedef Panels<T, TILE_OWN, FEATURES> LeftPanels;
typedef Panels<T, TILE_OWN, VALUE_FEATURES> RightPanels;
typedef Panels<T, TILE_OTHER, FEATURES> OtherLeftPanels;
typedef Panels<T, TILE_OTHER, VALUE_FEATURES> OtherRightPanels;
constexpr int STAGE_BYTES = OtherLeftPanels::BYTES + OtherRightPanels::BYTES;
// Unrolled over all steps, a loop would load more fragments ahead than there are registers.
constexpr int FRAGMENTS_AHEAD = Mask::ADDED || DROPOUT ? 1 : 2;
static_assert(STRIPS * Tile::ROWS <= THREADS, "a thread for each strip and block row");
static_assert(2 * TILE_OTHER <= THREADS, "a thread for each number of a query");

// Add the products of a warp's sixteen rows with the lines of two tiles, by columns: acc = a @ b.T.
template <typename A, typename B>
__device__ __forceinline__ void dot_rows(float (&acc)[STRIPS * 4], unsigned a_tile,
                                         unsigned b_tile) {
  const unsigned a_lane = left_lane<A>(16 * (threadIdx.x / 32)), b_lane = right_lane<B>();
#pragma unroll FRAGMENTS_AHEAD
  for (int k = 0; k < A::WIDTH / Mma<T>::k; ++k) {
    unsigned a[4];
    load_fragment<T>(a, a_tile + A::advance(a_lane, 0, Mma<T>::k * k));
    add_dot_products<B>(acc, a, k, b_tile, b_lane);
  }
}

// Add the products of a warp's numbers with the lines of a tile: sums += numbers @ b.
template <typename B>
__device__ __forceinline__ void add_rows(float (&sums)[B::WIDTH / 2],
                                         const float (&numbers)[STRIPS * 4], unsigned b_tile) {
  const AddedRows<B> rows;
#pragma unroll
  for (int k = 0; k < TILE_OTHER / Mma<T>::k; ++k) {
    unsigned a[4];
    weight_fragment<T>(a, numbers, k);
    rows.add(sums, a, k, b_tile);
  }
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
  const GradientOperands operands = {query, key, value, grad, lse, delta};
  const int features = problem.features, value_features = problem.value_features;

  const TileNumber of_owner = tile_in_order<Tile::SLICES>(blockIdx.x, problem);
  const long long first_head = of_owner.head * shares;
  Tile tile({first_head, of_owner.number}, schedule, matrices, batch, problem);
  const LaneQueries<Tile> rows(tile, 16 * warp);

  float first_sums[FEATURES / 2] = {};
  float second_sums[VALUE_FEATURES / 2] = {};  // of key and value

#pragma unroll 1
  for (long long b = first_head; b < first_head + shares; ++b) {
    tile.enter(b, matrices, batch, problem);
    // delta is contiguous in the order of the heads, so its place says a head's number.
    const TileScore score(score_args, tile.at, tile.at.offset(delta) / score_args.queries);
    const Mask mask(score, bits, tile.matrix * problem.nnzb);
    const GradientHead<T, BY_QUERIES> head(tile.at, operands);

    __syncthreads();  // the tiles of the head before have been read
    copy_lines<LeftPanels, THREADS>(left_tile, features, tile.lines(head.left, head.left_row));
    copy_lines<RightPanels, THREADS>(right_tile, value_features,
                                     tile.lines(head.right, head.right_row));

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
    const int tiles = ceil_div(reader.strips, STRIPS);
    reader.begin(ring);
    __syncthreads();

    auto copy_other = [&](int number) {
      const unsigned to = stages + number % 2 * STAGE_BYTES;
      const StripTile<Strips, Ring> strips(ring, number);
      copy_lines<OtherLeftPanels, THREADS>(to, features,
                                           strips.lines(head.other_left, head.other_left_row));
      copy_lines<OtherRightPanels, THREADS>(to + OtherLeftPanels::BYTES, value_features,
                                            strips.lines(head.other_right, head.other_right_row));
      if (!BY_QUERIES && threadIdx.x < 2 * TILE_OTHER) {
        const int which = threadIdx.x / TILE_OTHER, line = threadIdx.x % TILE_OTHER;
        const float* from = strips.lines(which ? head.delta : head.lse,
                                         which ? head.delta_row : head.lse_row)(line);
        cp_async<4>(shared_address(&of_queries[number % 2][which][line]), from, from != nullptr);
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
        float x = OfPairs::score_of(score, scores[i], own, other);
        const bool attended = OfPairs::attends(score, mask, ring.state[slot][rows.block_row[r]][j],
                                               rows.row_in_block[r], column, own, other, x);
        const auto& numbers = of_queries[number % 2];
        const auto pair =
            OfPairs::given(score, attended, x, score.bend(scores[i]), dweights[i], own, other,
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

  tile.enter(first_head, matrices, batch, problem);
  T* const first_to = tile.at.pointer<T>(first);
  T* const second_to = BY_QUERIES ? nullptr : tile.at.pointer<T>(second);
  unsigned again =
      store_gradient(first_to, first, features, first_sums, score_args.scale, tile, rows);
  if constexpr (!BY_QUERIES)
    again |= store_gradient(second_to, second, value_features, second_sums, 1.0f, tile, rows);
  if (!again) return;
  __syncwarp();  // behind what was stored, delta too

  const PlainGradient<BY_QUERIES, INDEX> plain = {operands, matrices,   first,      second,
                                                  batch,    schedule,   states,     bits,
                                                  problem,  score_args, first_head, shares};
  plain.rows<T, TileScore, Mask, OTHER, DROPOUT>(again, tile, rows.first);
}
