// The results of sixteen queries of a warp of attention's tensor-core kernels: outputs, or parts of
// a tile that is a split (fragments: ptx/mma.cuh, d).
#pragma once

#include "common/attention_parts.cuh"
#include "common/attention_row.cuh"
#include "common/attention_tile.cuh"
#include "common/warp_reduce.cuh"
#include "ptx/st_vector.cuh"

namespace sparsegpu {

// Store row `r` of a lane's two (of eight columns, each of four lanes has two) times `share`, if it
// is there. `row` points at its first element, of `columns`. `vectors`: its elements are contiguous
// and aligned, so that 16 bytes may be stored at once.
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
        transpose_across_lanes(words);
        const int column = 8 * (n + t);
        if (here && column < columns)
          st_vector(row + column, words[0], words[1], words[2], words[3]);
      }
      return;
    }
  }
  if (!here) return;
#pragma unroll
  for (int n = 0; n < N / 4; ++n) {
    if constexpr (sizeof(Out) >= 4) {
      if (vectors) {
        const A* const x = &sums[4 * n + 2 * r];
        if (8 * n < columns)
          *reinterpret_cast<Neighbours<Out>*>(row + 8 * n + 2 * t) = {round_to<Out>(x[0] * share),
                                                                      round_to<Out>(x[1] * share)};
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

// Results of a tile's rows: outputs and logarithms of their normalisers, in which a sink counts.
template <typename Out, typename A, bool Sinks>
struct RowOutputs {
  Out* out;  // of the tile's first row
  long long row_stride, col;
  A* lse;  // likewise, or null
  long long lse_stride;
  int value_features;
  bool vectors;
  A kept_scale, sink;

  template <typename Tile>
  __device__ __forceinline__ RowOutputs(const Tile& tile, const View& out, const View& lse, A sink,
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
        kept_scale(kept_scale),
        sink(sink) {}

  __device__ __forceinline__ Normalizer<A, Sinks> normalizer(A top, A sum) const {
    return {top, sum, sink, kept_scale};
  }
  // Store row `row` of the tile, row `r` of a lane's two, if it is there.
  template <int N>
  __device__ __forceinline__ void store(const A (&sums)[N], int r, int row, bool here, A top,
                                        A sum) const {
    store_row(sums, r, normalizer(top, sum).share, here, out + row * row_stride, col,
              value_features, vectors);
    if (here && lse != nullptr && threadIdx.x % 4 == 0)
      lse[row * lse_stride] = normalizer(top, sum).lse;
  }
  // Store what one of its columns is.
  __device__ __forceinline__ void put(int row, int column, A x, A top, A sum) const {
    out[row * row_stride + column * col] = round_to<Out>(x * normalizer(top, sum).share);
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
  __device__ __forceinline__ void put(int row, int column, float x, float, float) const {
    part(row).column(column) = x;
  }
};

// Store the results of a warp's queries. `get_operands` makes HeadOperands, which only a row that
// is computed again needs.
template <int BlockM, int BlockK, int N, typename Tile, typename GetOperands, typename A,
          typename Index, typename Score, typename Mask, typename Results>
__device__ __forceinline__ void store_rows(const A (&sums)[N], OnlineSoftmax<A>& softmax,
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
    results.store(sums, r, row, here, softmax.logit(r), softmax.sum[r]);
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
    const A top = __shfl_sync(~0u, r ? softmax.logit(1) : softmax.logit(0), from);
    attend_row<BlockM, BlockK>(head, schedule, states, Tile::ROWS, schedule.starts[tile.group],
                               schedule.counts[tile.group], Tile::block_row(row),
                               tile.row_in_block(row), tile.first + row, score, mask, top,
                               [&](int column, A x) { results.put(row, column, x, top, sum); });
  }
}

// Store the results of a warp's queries: outputs, or parts of a tile that is a split, whose merger
// counts the sink.
template <typename Out, bool Sinks, int BlockM, int BlockK, int N, typename Tile,
          typename GetOperands, typename Index, typename Score, typename Mask>
__device__ __forceinline__ void store_tile_rows(
    const float (&sums)[N], OnlineSoftmax<float>& softmax, const Tile& tile,
    const LaneQueries<Tile>& rows, GetOperands get_operands, int value_features,
    const RowGroups<Index>& schedule, const Index* states, const Score& score, const Mask& mask,
    const View& out, const View& lse, float sink, float* parts, long long splits) {
  constexpr int ROW_FLOATS = PART_HEADER + 2 * N;
  auto store = [&](const auto& results) {
    store_rows<BlockM, BlockK>(sums, softmax, tile, rows, get_operands, schedule, states, score,
                               mask, results);
  };
  if (tile.split >= 0)
    store(
        RowParts<2 * N>{split_row(parts, splits, tile.head, tile.split,
                                  Tile::SLICES * Tile::QUERIES, tile.first_in_block, ROW_FLOATS)});
  else
    store(
        RowOutputs<Out, float, Sinks>(tile, out, lse, sink, value_features, score.args.kept_scale));
}

}  // namespace sparsegpu
