// The tiles of a sampled product on tensor cores: some stored blocks of one block row, side by side
// in the order in which they are stored, or a part of one that is larger than a tile.
//
// Where blocks are few, K is split (engines/cuda/paths/_sampled.py): a tile then sums some terms
// only, and bsr_sampled_addmm_reduce.cu adds the sums of the splits in their order.
#pragma once

#include "common/ceil_div.cuh"
#include "common/output_matrix.cuh"

namespace sparsegpu {

struct SampledProblem {
  long long shares;  // of all matrices and splits (bsr_sampled_addmm_sm90/strip.cuh)
  long long chunks;  // numbers of chunks of a matrix (SampledTile)
  long long matrices, block_rows, blocks;  // block_rows, blocks: of a matrix
  long long k, inner;                      // terms of a split, and K; 0: matrices are not read
  long long out_step, input_step;          // from a block to the next
  long long split_step;                    // from the results of a split to those of the next
  int bm, padding;
};

// The matrix and the split that a tile is of.
struct SampledPart {
  long long part;  // split * matrices + matrix: one number, as registers are few

  // Which matrix of the batch it is of, and which split.
  __device__ __forceinline__ long long matrix(const SampledProblem& problem) const {
    return part % problem.matrices;
  }
  __device__ __forceinline__ long long split(const SampledProblem& problem) const {
    return part / problem.matrices;
  }
  // The first term of the tile's sums.
  __device__ __forceinline__ long long first_term(const SampledProblem& problem) const {
    return split(problem) * problem.k;
  }
};

// The last of the block rows whose key is at most `most`, or one of the `window` - 1 before it. The
// keys rise, the first one is at most `most`. By ballots of 32 rows: all lanes of a warp call this.
template <typename Key>
__device__ __forceinline__ long long last_row(long long most, long long rows, long long window,
                                              Key key) {
  const int lane = threadIdx.x % 32;
  long long row = 0;
  for (long long left = rows; left > window;) {
    const long long apart = ceil_div(left, 32), probe = lane * apart;
    const bool before = probe < left && key(row + probe) <= most;
    const long long passed = (__popc(__ballot_sync(~0u, before)) - 1) * apart;
    row += passed;
    left = min(apart, left - passed);
  }
  return row;
}

// Where the columns of a tile lie: BlockN columns a block, GATHER blocks, or a slice of one.
//
// A block row whose blocks begin at number p has its chunks of GATHER blocks in tiles p / GATHER +
// row and following. These numbers rise from a chunk to the next and leave some out, fewer than
// there are rows: so a tile's row is found without a schedule, and numbers that no chunk has are
// tiles without blocks.
template <int TileM, int TileN, int BlockN>
struct SampledTile : SampledPart {
  static constexpr int BLOCK_N = BlockN;
  static constexpr int GATHER = BlockN < TileN ? TileN / BlockN : 1;
  static constexpr int SLICES_N = BlockN < TileN ? 1 : ceil_div(BlockN, TileN);

  long long block_row;
  long long first_block;     // of its matrix
  int blocks;                // 0: there is no such tile
  int first_row, first_col;  // within the blocks
  int rows, columns;

  SampledTile() = default;

  // All lanes of a warp call this. `indptr` and `problem` as the kernel gets them.
  template <typename Index>
  __device__ __forceinline__ SampledTile(long long tile, const View& indptr, const Batch& batch,
                                         const SampledProblem& problem, Index) {
    const int slices = ceil_div(problem.bm, TileM);
    first_row = int(tile % slices) * TileM;
    first_col = int(tile / slices % SLICES_N) * TileN;
    const long long chunk = tile / slices / SLICES_N;
    part = chunk / problem.chunks;
    const Index* starts = batch_ptr<const Index>(indptr, batch, matrix(problem));
    const long long number = chunk - part * problem.chunks;
    const auto first_chunk = [&](long long row) {
      return (long long)starts[row * indptr.row] / GATHER + row;
    };
    block_row = last_row(number, problem.block_rows, 1, first_chunk);
    const long long start = starts[block_row * indptr.row];
    const long long end = starts[(block_row + 1) * indptr.row];
    first_block = start + (number - start / GATHER - block_row) * GATHER;
    blocks = int(max(min(end - first_block, (long long)GATHER), 0ll));
    rows = min(TileM, problem.bm - first_row);
    columns = BlockN < TileN ? blocks * BlockN : blocks * min(TileN, BlockN - first_col);
  }

  // How many terms its sums have.
  __device__ __forceinline__ long long terms(const SampledProblem& problem) const {
    return min(problem.k, problem.inner - first_term(problem));
  }

  // The block of the tile that a column of it belongs to, and the column within that block.
  static __device__ __forceinline__ int block_of(int column) { return column / BlockN; }
  __device__ __forceinline__ int column_in_block(int column) const {
    return SLICES_N > 1 ? first_col + column : column % BlockN;
  }
};

// What a warp stores: some rows of staged sums at a time, which the epilogue turns into outputs.
template <typename A, typename Op, typename Tile>
struct SampledOutputs {
  typedef typename Op::Out Out;
  static constexpr int VECTOR = 16 / sizeof(Out);
  static constexpr bool WHOLE_VECTORS = Tile::BLOCK_N % VECTOR == 0;

  const Tile& tile;
  const View& view;
  const SampledProblem& problem;
  const Op finish;
  Out* out;      // of the tile's first block
  bool vectors;  // rows of all blocks are whole 16-byte vectors

  __device__ __forceinline__ SampledOutputs(const Tile& tile, const View& view, const Batch& batch,
                                            const SampledProblem& problem,
                                            const typename Op::Args& epilogue)
      : tile(tile), view(view), problem(problem), finish(epilogue, batch, tile.matrix(problem)) {
    out = batch_ptr<Out>(view, batch, tile.matrix(problem)) + tile.first_block * problem.out_step +
          tile.split(problem) * problem.split_step;
    vectors = WHOLE_VECTORS && view.col == 1 && (view.row | problem.out_step) % VECTOR == 0 &&
              reinterpret_cast<unsigned long long>(out) % 16 == 0;
  }

  // The epilogue of a block of the tile.
  __device__ __forceinline__ Op of_block(int block) const {
    Op op = finish;
    if constexpr (Op::HAS_INPUT) op.input += (tile.first_block + block) * problem.input_step;
    return op;
  }

  // Store WIDTH columns of the tile from `col` on, of HEIGHT of its rows from `top` on; staged[m *
  // pitch + n] is the sum of row m and column n of these.
  template <int WIDTH, int HEIGHT = 16>
  __device__ __forceinline__ void store(const A* staged, int pitch, int top, int col) const {
    const int lane = threadIdx.x % 32;
    if (vectors) {
      if constexpr (WHOLE_VECTORS) {
#pragma unroll 1
        for (int e = lane; e < HEIGHT * WIDTH / VECTOR; e += 32) {
          const int m = e / (WIDTH / VECTOR), n = e % (WIDTH / VECTOR) * VECTOR;
          if (top + m >= tile.rows || col + n >= tile.columns) continue;
          const int block = tile.block_of(col + n), first = tile.column_in_block(col + n);
          const long long row = tile.first_row + top + m;
          const Op op = of_block(block);
          alignas(16) Out values[VECTOR];
#pragma unroll
          for (int i = 0; i < VECTOR; ++i)
            values[i] = op(staged[m * pitch + n + i], row, first + i);
          *reinterpret_cast<uint4*>(out + block * problem.out_step + row * view.row + first) =
              *reinterpret_cast<const uint4*>(values);
        }
      }
      return;
    }
    const bool by_column = view.row < view.col;
#pragma unroll 1
    for (int e = lane; e < HEIGHT * WIDTH; e += 32) {
      const int m = by_column ? e % HEIGHT : e / WIDTH;
      const int n = by_column ? e / HEIGHT : e % WIDTH;
      if (top + m >= tile.rows || col + n >= tile.columns) continue;
      const int block = tile.block_of(col + n), column = tile.column_in_block(col + n);
      const long long row = tile.first_row + top + m;
      out[block * problem.out_step + element_offset(view, row, column)] =
          of_block(block)(staged[m * pitch + n], row, column);
    }
  }
};

}  // namespace sparsegpu
