// BSR @ 1 to 8 vectors by the float64 tensor cores, at the speed of memory: blocks whose sides are
// 2, 4 or 8.
//
// A product of fragments, 8 x 8 x 4, takes a block row in each of SLOTS slots: those of the left
// fragment are BM of its rows, those of the right one NP of its columns, and of the sums those
// count whose row and column are of the same slot. The 4 terms are K_LANES lanes' worth of one
// block, and as many blocks of a row side by side as there is room for. A lane loads two
// consecutive values of a row of a block at once, as terms of two products: which terms a product
// has is free. So a value is loaded once, by one lane, from where it lies in memory; a lane has few
// registers for each block in flight and two sums; and no sums need to be added across lanes.
//
// -DT (f32 or f64), -DINDEX, -DOUT, -DEPILOGUE, -DACT, -DBM, -DBK, -DCOLUMNS, -DSPLIT_ROWS,
// -DBATCHED, -DUNROLL, -DWARPS, -DRESIDENT as in bsr_addmm_vector.cu; -DX_VECTOR=1 where two
// elements of a column of dense can be loaded at once.
#include "common/kernel_epilogue.cuh"
#include "common/spmv_rows.cuh"
#include "ptx/mma.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

struct Config {
  typedef T Element;
  typedef INDEX Index;
  typedef KernelEpilogue<A, OUT> Op;
  static constexpr int bm = BM, bk = BK, columns = COLUMNS, warps = WARPS;
  static constexpr bool split_rows = SPLIT_ROWS, batched = BATCHED;
};
typedef SpmvRows<Config> WarpRows;

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
    bsr_addmm_vector_mma(const __grid_constant__ SpmvOperands operands, A* partials,
                         const __grid_constant__ Config::Op::Args epilogue) {
  const WarpRows mine(operands, partials, epilogue, SLOTS);
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
  auto split_at = [&](long long row, bool has_slot) {
    return mine.split_at(has_slot ? row : mine.rows);
  };
  // The lane's next block is the first of so many.
  auto blocks_of = [&](const RowSplit& split) { return int(split.end - split.begin) - beside; };
  INDEX column[UNROLL];
  auto load_columns = [&](const INDEX* at, int left) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (u * STEP < left) column[u] = __ldg(at + u * STEP);
  };

  RowSplit left_split = split_at(mine.first + left_slot, left_lane);
  RowSplit right_split = split_at(mine.first + right_slot, right_lane);
  RowSplit left_next = split_at(mine.first + SLOTS + left_slot, left_lane);
  RowSplit right_next = split_at(mine.first + SLOTS + right_slot, right_lane);
  load_columns(columns + right_split.begin, blocks_of(right_split));
#pragma unroll 1
  for (int round = 0; round < operands.problem.rounds; ++round) {
    const long long row = mine.first + round * SLOTS;
    if (row >= mine.rows) break;
    const RowSplit left_after = split_at(row + 2 * SLOTS + left_slot, left_lane);
    const RowSplit right_after = split_at(row + 2 * SLOTS + right_slot, right_lane);
    const T* at = values + left_split.begin * BLOCK;
    const INDEX* columns_at = columns + right_split.begin;
    int left = blocks_of(left_split), right = blocks_of(right_split);
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
        if constexpr (X_VECTOR) {
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
        if ((2 * q + i) / NP == left_slot && n < COLUMNS) mine.store(left_split, r, n, A(sum[i]));
      }
    }
    left_split = left_next, right_split = right_next;
    left_next = left_after, right_next = right_after;
  }
}
