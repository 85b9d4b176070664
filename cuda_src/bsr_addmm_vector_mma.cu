// BSR @ 1 to 8 vectors by the float64 tensor cores, at the speed of memory: blocks whose sides are
// 2, 4 or 8.
//
// A product of fragments, 8 x 8 x 4, takes a block row in each of SLOTS slots: those of the left
// fragment are BM of its rows, those of the right one NP of its columns, and of the sums those
// count in which a slot met itself. The 4 terms are K_LANES lanes' worth of one block, and as many
// blocks of a row side by side as there is room for. A lane loads two consecutive values of a row
// of a block at once, and they are terms of two products: which terms go together is ours to
// choose. So a value is loaded once, by one lane, as it lies in memory; a lane has few registers
// for each block under way and two sums; and no sums are to be added over lanes.
//
// -DT (f32 or f64), -DINDEX, -DOUT, -DEPILOGUE, -DACT, -DBM, -DBK, -DCOLUMNS, -DPIECES, -DBATCHED,
// -DUNROLL, -DWARPS, -DRESIDENT as in bsr_addmm_vector.cu; -DX_TOGETHER=1 where two elements of a
// column of dense can be loaded at once.
#include "common/vector_rows.cuh"
#include "ptx/mma.cuh"

using namespace sparsegpu;

constexpr int BLOCK = BM * BK;
constexpr int TERMS = 2;             // of a lane
constexpr int K_LANES = BK / TERMS;  // lanes that share a row of a block
constexpr int STEP = 4 / K_LANES;    // blocks of a row that are multiplied at once
constexpr int NP = COLUMNS == 1 ? 1 : COLUMNS == 2 ? 2 : COLUMNS <= 4 ? 4 : 8;
constexpr int SLOTS = 8 / (BM > NP ? BM : NP);

union Values {
  Word<TERMS * sizeof(T)>::type word;
  T value[TERMS];
};

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT)
    bsr_addmm_vector_mma(const __grid_constant__ Operands operands, A* parts,
                         const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  const WarpRows mine(operands, parts, epilogue, SLOTS);
  if (mine.none) return;
  const int line = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  const int beside = q / K_LANES, k = q % K_LANES * TERMS;
  const int left_slot = line / BM, right_slot = line / NP, r = line % BM, c = line % NP;
  const bool left_lane = left_slot < SLOTS, right_lane = right_slot < SLOTS && c < COLUMNS;
  const View& dense = operands.dense;
  const T* const values = mine.values + (long long)beside * BLOCK + r * BK + k;
  const INDEX* const columns = mine.columns + beside;
  const T* const panel = mine.dense + k * dense.row + c * dense.col;

  // A lane without a slot has a row without blocks.
  auto piece_at = [&](long long row, bool has_slot) {
    return mine.piece_at(has_slot ? row : mine.rows);
  };
  // The lane's next block is the first of so many.
  auto blocks_of = [&](const Piece& piece) { return int(piece.end - piece.begin) - beside; };
  INDEX column[UNROLL];
  auto load_columns = [&](const INDEX* at, int left) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (u * STEP < left) column[u] = __ldg(at + u * STEP);
  };

  Piece left_piece = piece_at(mine.first + left_slot, left_lane);
  Piece right_piece = piece_at(mine.first + right_slot, right_lane);
  Piece left_next = piece_at(mine.first + SLOTS + left_slot, left_lane);
  Piece right_next = piece_at(mine.first + SLOTS + right_slot, right_lane);
  load_columns(columns + right_piece.begin, blocks_of(right_piece));
#pragma unroll 1
  for (int round = 0; round < operands.sizes.rounds; ++round) {
    const long long row = mine.first + round * SLOTS;
    if (row >= mine.rows) break;
    const Piece left_after = piece_at(row + 2 * SLOTS + left_slot, left_lane);
    const Piece right_after = piece_at(row + 2 * SLOTS + right_slot, right_lane);
    const T* at = values + left_piece.begin * BLOCK;
    const INDEX* columns_at = columns + right_piece.begin;
    int left = blocks_of(left_piece), right = blocks_of(right_piece);
    f64 sum[2] = {0, 0};
#pragma unroll 1
    do {
      Values a[UNROLL], x[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        a[u].word = {};
        if (u * STEP < left)
          a[u].word = __ldcs(reinterpret_cast<const decltype(a[u].word)*>(at + u * STEP * BLOCK));
      }
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        const T* from = mine.block_row(panel, column[u]);
        x[u].word = {};
        if constexpr (X_TOGETHER) {
          if (u * STEP < right)
            x[u].word = __ldg(reinterpret_cast<const decltype(x[u].word)*>(from));
        } else {
#pragma unroll
          for (int e = 0; e < TERMS; ++e)
            if (u * STEP < right) x[u].value[e] = __ldg(from + e * dense.row);
        }
      }
      at += UNROLL * STEP * BLOCK;
      columns_at += UNROLL * STEP;
      left -= UNROLL * STEP;
      right -= UNROLL * STEP;
      const bool more = right > 0;
      load_columns(more ? columns_at : columns + right_next.begin,
                   more ? right : blocks_of(right_next));
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
#pragma unroll
        for (int e = 0; e < TERMS; ++e) mma_f64_m8n8k4(sum, f64(a[u].value[e]), f64(x[u].value[e]));
    } while (__any_sync(0xffffffffu, left > 0));
    if (left_lane && row + left_slot < mine.rows) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int n = (2 * q + i) % NP;
        if ((2 * q + i) / NP == left_slot && n < COLUMNS) mine.put(left_piece, r, n, A(sum[i]));
      }
    }
    left_piece = left_next, right_piece = right_next;
    left_next = left_after, right_next = right_after;
  }
}
