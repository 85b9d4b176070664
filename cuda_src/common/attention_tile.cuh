// What the tensor-core kernels of attention do with the accumulators of a warp: scores, masks,
// dropout, and the results of sixteen queries (fragments: ptx/mma.cuh, d).
#pragma once

#include "common/attention_parts.cuh"
#include "common/attention_row.cuh"
#include "common/online_softmax.cuh"

namespace sparsegpu {

// The two rows of a tile that a lane has: g and g + 8 of the warp's.
template <typename Tile>
struct LaneQueries {
  int first;  // the warp's first row of the tile
  int block_row[2], row_in_block[2];
  int query[2];

  __device__ __forceinline__ LaneQueries(const Tile& tile, int first) : first(first) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(first + int(threadIdx.x % 32) / 4 + 8 * r, tile.rows - 1);
      // of a warp, where no block begins within its rows
      block_row[r] = Tile::block_row(Tile::BLOCK_M % 16 == 0 ? min(first, tile.rows - 1) : row);
      row_in_block[r] = tile.row_in_block(row);
      query[r] = tile.first + row;
    }
  }
};

// A strip of keys, for the two rows of a lane: what their blocks' states are, the first key, and
// its column in the block.
template <typename Index>
struct Strip {
  Index state[2];
  int key;
  int column;

  // Whether a row has to look at it, and whether a row sees all of it.
  template <typename Rows>
  __device__ __forceinline__ bool any(const Rows& rows, bool causal) const {
    return (state[0] != NOT_STORED && !(causal && key > rows.query[0])) ||
           (state[1] != NOT_STORED && !(causal && key > rows.query[1]));
  }
  template <typename Rows>
  __device__ __forceinline__ bool all(const Rows& rows, bool causal) const {
    return state[0] == ALL_TRUE && state[1] == ALL_TRUE && !(causal && key + 7 > rows.query[0]);
  }
};

// Turn accumulators of the strips first .. last - 1 into scores, -inf where they are not attended.
// `strip(j)` is a Strip; `whole`: everything is attended.
template <bool FOLDED, typename A, int N, typename Rows, typename Score, typename Mask,
          typename GetStrip>
__device__ __forceinline__ void score_strips(A (&scores)[N], int first, int last, const Rows& rows,
                                             const Score& score, const Mask& mask, bool whole,
                                             GetStrip strip) {
  if (FOLDED && whole) return;
#pragma unroll
  for (int j = first; j < last; ++j) {
    const auto here = strip(j);
    const int lane_column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      A x[2] = {scores[4 * j + 2 * r], scores[4 * j + 2 * r + 1]};
      if constexpr (!FOLDED)
        for (int i = 0; i < 2; ++i)
          x[i] = score.score(x[i], rows.query[r], here.key + lane_column + i);
      if (!whole) {
        bool attended[2];
        mask.row(here.state[r], rows.row_in_block[r], here.column + lane_column, attended, x);
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (!attended[i] || !score.in_order(rows.query[r], here.key + lane_column + i))
            x[i] = minus_infinity<A>();
      }
      scores[4 * j + 2 * r] = x[0];
      scores[4 * j + 2 * r + 1] = x[1];
    }
  }
}

// The words of dropout for a lane's four weights of a strip that begins with key `first`, where
// keys share words by fours.
//
// Four neighbouring keys have the words of one counter (common/philox.cuh), and two neighbouring
// lanes two of them each, for two rows: one lane makes the words of the first row, the other one
// those of the second.
template <typename Rows, typename Score>
__device__ __forceinline__ void strip_words(unsigned (&of_weights)[4], const Rows& rows,
                                            const Score& score, int first) {
  const int t = threadIdx.x % 4;
  const bool odd = t % 2;
  const int key = first + t / 2 * 4;
  const unsigned long long of_rows[2] = {score.index(rows.query[0], key),
                                         score.index(rows.query[1], key)};
  const uint4 words = philox4x32((odd ? of_rows[1] : of_rows[0]) / 4, score.args.seed);
  const unsigned x = __shfl_xor_sync(~0u, odd ? words.x : words.z, 1);
  const unsigned y = __shfl_xor_sync(~0u, odd ? words.y : words.w, 1);
  of_weights[0] = odd ? x : words.x;
  of_weights[1] = odd ? y : words.y;
  of_weights[2] = odd ? words.z : x;
  of_weights[3] = odd ? words.w : y;
}

// Set weights that dropout does not keep to zero, those of the strips first .. last - 1.
template <typename A, int N, typename Rows, typename Score, typename GetStrip>
__device__ __forceinline__ void drop_weights(A (&weights)[N], int first_strip, int last_strip,
                                             const Rows& rows, const Score& score, GetStrip strip) {
#pragma unroll
  for (int j = first_strip; j < last_strip; ++j) {
    const int first = strip(j).key;
    if (score.args.by_fours(first)) {
      unsigned of_weights[4];
      strip_words(of_weights, rows, score, first);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (of_weights[i] <= score.dropped) weights[4 * j + i] = 0;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!score.keeps(weights[4 * j + i] != 0, rows.query[i / 2],
                         first + int(threadIdx.x) % 4 * 2 + i % 2))
          weights[4 * j + i] = 0;
    }
  }
}

// The left operand of the second product, for sixteen keys: weights 8 k .. 8 k + 7.
template <typename E, int N>
__device__ __forceinline__ void weight_fragment(unsigned (&a)[4], const float (&weights)[N],
                                                int k) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const E pair[2] = {round_to<E>(weights[8 * k + 2 * i]),
                       round_to<E>(weights[8 * k + 2 * i + 1])};
    memcpy(&a[i], pair, 4);
  }
}

// Exchange four words among four neighbouring lanes: of each lane's words, number t goes to lane t.
__device__ __forceinline__ void exchange(unsigned (&words)[4]) {
  const bool odd = threadIdx.x % 2, high = threadIdx.x % 4 / 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const unsigned got = __shfl_xor_sync(~0u, odd ? words[i] : words[i + 1], 1);
    words[i] = odd ? got : words[i];
    words[i + 1] = odd ? words[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned got = __shfl_xor_sync(~0u, high ? words[i] : words[i + 2], 2);
    words[i] = high ? got : words[i];
    words[i + 2] = high ? words[i + 2] : got;
  }
}

// Store row `r` of a lane's two (8 columns to four lanes, two each) times `share`, if it is there;
// `row`: where it begins, `columns` of it. Rows of `vectors` lie side by side, and so that 16 bytes
// of them may be stored at once.
template <typename Out, typename A, int N>
__device__ __forceinline__ void store_row(const A (&sums)[N], int r, A share, bool here, Out* row,
                                          long long stride, int columns, bool vectors) {
  const int t = threadIdx.x % 4;
  if constexpr (sizeof(Out) == 2) {
    if (vectors) {
#pragma unroll
      for (int n = 0; n < N / 4; n += 4) {
        unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4 && n + i < N / 4; ++i) {
          const A* const x = &sums[4 * (n + i) + 2 * r];
          const Out pair[2] = {round_to<Out>(x[0] * share), round_to<Out>(x[1] * share)};
          memcpy(&words[i], pair, 4);
        }
        exchange(words);
        const int column = 8 * (n + t);
        if (here && column < columns)
          *reinterpret_cast<uint4*>(row + column) =
              make_uint4(words[0], words[1], words[2], words[3]);
      }
      return;
    }
  }
  if (!here) return;
#pragma unroll
  for (int n = 0; n < N / 4; ++n) {
    if constexpr (sizeof(Out) == 8) {
      if (vectors) {
        const A* const x = &sums[4 * n + 2 * r];
        if (8 * n < columns)
          *reinterpret_cast<double2*>(row + 8 * n + 2 * t) =
              make_double2(x[0] * share, x[1] * share);
        continue;
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = 8 * n + 2 * t + i;
      if (column < columns) row[column * stride] = round_to<Out>(sums[4 * n + 2 * r + i] * share);
    }
  }
}

// Results of a tile's rows: outputs and logarithms of their normalisers.
template <typename Out, typename A>
struct RowOutputs {
  Out* out;  // of the tile's first row
  long long row_stride, col;
  A* lse;  // likewise, or null
  long long lse_stride;
  int value_features;
  bool vectors;
  A kept_scale;

  template <typename Tile>
  __device__ __forceinline__ RowOutputs(const Tile& tile, const View& out, const View& lse,
                                        int value_features, A kept_scale)
      : out(tile.at.template pointer<Out>(out) + (long long)tile.first * out.row),
        row_stride(out.row),
        col(out.col),
        lse(lse.ptr == nullptr
                ? nullptr
                : tile.at.template pointer<A>(lse) + (long long)tile.first * lse.row),
        lse_stride(lse.row),
        value_features(value_features),
        vectors(out.col == 1 && out.row % 8 == 0 && value_features % 8 == 0 &&
                reinterpret_cast<unsigned long long>(tile.at.template pointer<Out>(out)) % 16 == 0),
        kept_scale(kept_scale) {}

  // Nothing attended: zeros, and log(0) = -inf.
  __device__ __forceinline__ A share(A sum) const { return sum == 0 ? A(0) : kept_scale / sum; }
  // Store row `row` of the tile, row `r` of a lane's two, if it is there.
  template <int N>
  __device__ __forceinline__ void store(const A (&sums)[N], int r, int row, bool here, A top,
                                        A sum) const {
    store_row(sums, r, share(sum), here, out + row * row_stride, col, value_features, vectors);
    if (here && lse != nullptr && threadIdx.x % 4 == 0) lse[row * lse_stride] = top + log(sum);
  }
  // Store what one of its columns is.
  __device__ __forceinline__ void put(int row, int column, A x, A sum) const {
    out[row * row_stride + column * col] = round_to<Out>(x * share(sum));
  }
};

// Results of the rows of a tile that is a split: parts, in workspace.
template <int ValueFeatures>
struct RowParts {
  float* parts;  // of the tile's first row

  __device__ __forceinline__ PartialRow<float> part(int row) const {
    return {parts + row * (PART_HEADER + ValueFeatures)};
  }
  template <int N>
  __device__ __forceinline__ void store(const float (&sums)[N], int r, int row, bool here,
                                        float top, float sum) const {
    if (!here) return;
    const PartialRow<float> to = part(row);
    if (threadIdx.x % 4 == 0) to.top() = top, to.sum() = sum;
#pragma unroll
    for (int n = 0; n < N / 4; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        to.column(8 * n + int(threadIdx.x) % 4 * 2 + i) = sums[4 * n + 2 * r + i];
  }
  __device__ __forceinline__ void put(int row, int column, float x, float) const {
    part(row).column(column) = x;
  }
};

// Store the results of a warp's queries. `get_operands` makes HeadOperands, which only a row that
// is computed again needs.
template <int BlockM, int BlockK, int N, typename Tile, typename GetOperands, typename A,
          typename Index, typename Score, typename Mask, typename Results>
__device__ __forceinline__ void store_rows(const A (&sums)[N], OnlineSoftmax<A>& softmax, A unit,
                                           const Tile& tile, const LaneQueries<Tile>& rows,
                                           GetOperands get_operands,
                                           const RowGroups<Index>& schedule, const Index* states,
                                           const Score& score, const Mask& mask,
                                           const Results& results) {
  const int lane = threadIdx.x % 32;
  softmax.finish();
  unsigned again[2];  // lanes with a sum that is not a number, a ballot for each row
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = rows.first + lane / 4 + 8 * r;
    const bool here = row < tile.rows;
    bool number = true;
#pragma unroll
    for (int n = 0; n < N / 4; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) number &= sums[4 * n + 2 * r + i] == sums[4 * n + 2 * r + i];
    }
    results.store(sums, r, row, here, softmax.top[r] * unit, softmax.sum[r]);
    again[r] = __ballot_sync(~0u, here && !number);
  }
  if (!(again[0] | again[1])) return;
  __syncwarp();  // behind what was stored
  const auto head = get_operands();
#pragma unroll 1
  for (int i = 0; i < 16; ++i) {
    const int r = i / 8, from = i % 8 * 4;
    if (!((r ? again[1] : again[0]) >> from & 15)) continue;
    const int row = rows.first + i;
    const A sum = __shfl_sync(~0u, r ? softmax.sum[1] : softmax.sum[0], from);
    const A top = __shfl_sync(~0u, (r ? softmax.top[1] : softmax.top[0]) * unit, from);
    attend_row<BlockM, BlockK>(head, schedule, states, Tile::ROWS, schedule.starts[tile.group],
                               schedule.counts[tile.group], Tile::block_row(row),
                               tile.row_in_block(row), tile.first + row, score, mask, top,
                               [&](int column, A x) { results.put(row, column, x, sum); });
  }
}

// Store the results of a warp's queries: outputs, or parts of a tile that is a split.
template <typename Out, int BlockM, int BlockK, int N, typename Tile, typename GetOperands,
          typename Index, typename Score, typename Mask>
__device__ __forceinline__ void store_tile_rows(
    const float (&sums)[N], OnlineSoftmax<float>& softmax, float unit, const Tile& tile,
    const LaneQueries<Tile>& rows, GetOperands get_operands, int value_features,
    const RowGroups<Index>& schedule, const Index* states, const Score& score, const Mask& mask,
    const View& out, const View& lse, float* parts, long long splits) {
  constexpr int ROW_FLOATS = PART_HEADER + 2 * N;
  auto store = [&](const auto& results) {
    store_rows<BlockM, BlockK>(sums, softmax, unit, tile, rows, get_operands, schedule, states,
                               score, mask, results);
  };
  if (tile.split >= 0)
    store(
        RowParts<2 * N>{split_row(parts, splits, tile.head, tile.split,
                                  Tile::SLICES * Tile::QUERIES, tile.first_in_block, ROW_FLOATS)});
  else
    store(RowOutputs<Out, float>(tile, out, lse, value_features, score.args.kept_scale));
}

}  // namespace sparsegpu
