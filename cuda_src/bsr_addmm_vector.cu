// BSR @ a vector or a few vectors, at the speed of memory: small blocks, N up to 16.
//
// Every stored value is used once for each of the few columns, so time is the time to stream
// `data` and `indices` from memory. A team of TEAM lanes takes a block row: its blocks, one after
// the other in memory, are loaded straight to registers, UNROLL loads of a lane in flight at once;
// `dense` is gathered from L1 and L2. Several teams of a warp, and many warps of a multiprocessor,
// keep enough bytes in flight (4 TB/s times 0.7 us are 21 KB a multiprocessor).
//
// Within a team a lane stands for (slot, rl, cl, ng): it takes every SLOTS-th block of the row, its
// rows rl, rl + RL, ..., its columns cl * CV ... + CV - 1, and of the output columns ng * NV ...
// + NV - 1. Where CV elements are one load, neighbouring lanes read neighbouring 16-byte vectors.
// The lanes' sums are added by shuffles in a fixed order.
//
// -DSPLIT_ROWS=0: row r of the work is block row r of the pattern. 1: rows are of very different
// lengths; the work is a list of rows and splits of rows, longest first, and the sums of a row that
// is split go to `partials`, for bsr_addmm_vector_reduce.cu to add.
//
// -DBATCHED=0: one matrix.
//
// -DT, -DINDEX, -DOUT, -DEPILOGUE, -DACT as in bsr_addmm_simt.cu; -DBM, -DBK the block; -DCOLUMNS
// N; -DTEAM, -DRL, -DCV, -DNG, -DNV, -DUNROLL as above; -DCONTIGUOUS_ROWS=1: a lane's rows are not
// RL apart but contiguous, and loaded as one vector; -DWARPS of a thread block, -DRESIDENT of these
// on a multiprocessor; -DX_VECTOR=1 where CV elements of a column of dense can be loaded at once, 2
// where NV of a row; -DSTREAM=1 loads data with the streaming hint. data is aligned to its vectors
// of CV elements.
#include "common/ceil_div.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/spmv_rows.cuh"
#include "common/warp_reduce.cuh"

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
constexpr int CL = ceil_div(BK, CV);
constexpr int RI = ceil_div(BM, RL);  // rows of a block that a lane takes
constexpr int LANES = RL * CL * NG;   // lanes that share a block
constexpr int SLOTS = TEAM / LANES;
constexpr int TEAMS = 32 / TEAM;  // of a warp
constexpr int SUMS = RI * NV;     // of a lane

static_assert(LANES <= TEAM && TEAM <= 32 && (TEAM & (TEAM - 1)) == 0, "a block fits a team");
static_assert((NG & (NG - 1)) == 0 && NG * NV >= COLUMNS, "column groups are bits of the lane");
static_assert(RL == 1 || ((RL & (RL - 1)) == 0 && (CL & (CL - 1)) == 0),
              "rows are bits of it, too");
static_assert(!CONTIGUOUS_ROWS || (CL == 1 && BM % RL == 0), "whole rows of a block, contiguous");
static_assert(X_VECTOR != 1 || BK % CV == 0, "vectors along a column stay within the block");
static_assert(X_VECTOR != 2 || COLUMNS % NV == 0, "vectors along a row stay within N");

constexpr int word_of(int bytes) {
  return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : bytes % 2 == 0 ? 2 : 1;
}

// COUNT elements, in the widest words that make them up.
template <typename E, int COUNT>
struct Pack {
  static constexpr int BYTES = int(sizeof(E)) * COUNT;
  typedef typename Word<word_of(BYTES)>::type W;
  static constexpr int WORDS = BYTES / int(sizeof(W));
  W word[WORDS];
  __device__ __forceinline__ E operator[](int i) const {
    return reinterpret_cast<const E*>(word)[i];
  }
};

// Through the read-only cache: these bytes are not written while the kernel runs.
template <typename E, int COUNT>
__device__ __forceinline__ Pack<E, COUNT> load_constant(const E* p) {
  typedef Pack<E, COUNT> P;
  P pack;
#pragma unroll
  for (int i = 0; i < P::WORDS; ++i)
    pack.word[i] = __ldg(reinterpret_cast<const typename P::W*>(p) + i);
  return pack;
}

// The same with the streaming hint, for what is read once and fills its sectors: evicted first.
template <typename E, int COUNT>
__device__ __forceinline__ Pack<E, COUNT> load_once(const E* p) {
  typedef Pack<E, COUNT> P;
  P pack;
#pragma unroll
  for (int i = 0; i < P::WORDS; ++i) {
    const typename P::W* at = reinterpret_cast<const typename P::W*>(p) + i;
    pack.word[i] = STREAM && sizeof(typename P::W) >= 8 ? __ldcs(at) : __ldg(at);
  }
  return pack;
}

// The blocks of a row that a lane has still to take; `left` also counts those of other slots.
struct Blocks {
  const T* values;  // at the lane's place in its next block
  const INDEX* columns;
  int left;

  __device__ __forceinline__ bool has(int u) const { return u * SLOTS < left; }
};

// A lane's values of a block: RI rows of CV columns, as they were loaded.
struct LaneBlock {
  static constexpr int PACKS = CONTIGUOUS_ROWS ? 1 : RI, WIDTH = CONTIGUOUS_ROWS ? RI * CV : CV;
  Pack<T, WIDTH> pack[PACKS];
  __device__ __forceinline__ T at(int i, int c) const {
    return CONTIGUOUS_ROWS ? pack[0][i * CV + c] : pack[i][c];
  }
};

struct Team {
  int warp_lane, lane, slot, rl, cl, ng;
  A sum[SUMS];
  INDEX column[UNROLL];  // of the blocks that are next
  int first, count;      // after `add_lanes`: the sums first .. first + count - 1 are here
  bool owner;            // and are this lane's to store

  __device__ __forceinline__ explicit Team(int warp_lane) : warp_lane(warp_lane) {
    lane = warp_lane % TEAM;
    ng = lane % NG;
    cl = lane / NG % CL;
    rl = lane / (NG * CL) % RL;
    slot = lane / LANES;
  }

  // The lane's row number i of a block.
  __device__ __forceinline__ int row_of(int i) const {
    return CONTIGUOUS_ROWS ? rl * RI + i : rl + i * RL;
  }
  __device__ __forceinline__ bool has_row(int i) const { return BM % RL == 0 || row_of(i) < BM; }
  __device__ __forceinline__ bool has_col(int c) const { return BK % CV == 0 || cl * CV + c < BK; }
  __device__ __forceinline__ bool has_out(int v) const {
    return NG * NV == COLUMNS || ng * NV + v < COLUMNS;
  }

  // From the lane's first row and column of a block row of dense on.
  __device__ __forceinline__ void load_x(A (&x)[CV][NV], const View& dense, const T* at) const {
    if constexpr (X_VECTOR == 1) {
#pragma unroll
      for (int v = 0; v < NV; ++v)
        if (has_out(v)) {
          const Pack<T, CV> pack = load_constant<T, CV>(at + v * dense.col);
#pragma unroll
          for (int c = 0; c < CV; ++c) x[c][v] = to_acc(pack[c]);
        }
    } else if constexpr (X_VECTOR == 2) {
#pragma unroll
      for (int c = 0; c < CV; ++c)
        if (has_col(c)) {
          const Pack<T, NV> pack = load_constant<T, NV>(at + c * dense.row);
#pragma unroll
          for (int v = 0; v < NV; ++v) x[c][v] = to_acc(pack[v]);
        }
    } else {
#pragma unroll
      for (int c = 0; c < CV; ++c)
#pragma unroll
        for (int v = 0; v < NV; ++v)
          if (has_col(c) && has_out(v))
            x[c][v] = to_acc(load_constant<T, 1>(at + c * dense.row + v * dense.col)[0]);
    }
  }

  __device__ __forceinline__ void load_block(LaneBlock& lane_block, const T* at) const {
#pragma unroll
    for (int i = 0; i < LaneBlock::PACKS; ++i)
      if (has_row(i)) {
        if constexpr (BK % CV == 0) {
          lane_block.pack[i] = load_once<T, LaneBlock::WIDTH>(at + i * RL * BK);
        } else {
#pragma unroll
          for (int c = 0; c < CV; ++c)
            if (has_col(c))
              reinterpret_cast<T*>(lane_block.pack[i].word)[c] =
                  load_constant<T, 1>(at + i * RL * BK + c)[0];
        }
      }
  }

  __device__ __forceinline__ void load_columns(const INDEX* columns, int left) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (u * SLOTS < left) column[u] = __ldg(columns + u * SLOTS);
  }

  // Add the products of a row's blocks. `column` holds the columns of the first of them, and those
  // of `next` afterwards: a block's row of dense can be loaded only once its column has arrived.
  // `panel` is at the lane's first row and column of block row 0 of dense.
  __device__ __forceinline__ void multiply(Blocks row, const Blocks& next, const WarpRows& mine,
                                           const T* panel) {
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sum[i] = A(0);
#pragma unroll 1
    do {
      LaneBlock block[UNROLL];
      A x[UNROLL][CV][NV];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
        if (row.has(u)) load_block(block[u], row.values + u * SLOTS * BLOCK);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
        if (row.has(u)) load_x(x[u], mine.operands.dense, mine.block_row(panel, column[u]));
      const Blocks now = row;
      row.values += UNROLL * SLOTS * BLOCK;
      row.columns += UNROLL * SLOTS;
      row.left -= UNROLL * SLOTS;
      const bool more = row.left > 0;
      load_columns(more ? row.columns : next.columns, more ? row.left : next.left);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u)
        if (now.has(u)) {
#pragma unroll
          for (int i = 0; i < RI; ++i)
#pragma unroll
            for (int c = 0; c < CV; ++c)
#pragma unroll
              for (int v = 0; v < NV; ++v)
                if (has_row(i) && has_col(c) && has_out(v))
                  sum[i * NV + v] = fma_acc(to_acc(block[u].at(i, c)), x[u][c][v], sum[i * NV + v]);
        }
    } while (row.left > 0);
  }

  // Whether lanes that differ in this bit hold partial sums of the same outputs.
  static constexpr bool shared_sums(int step) {
    return step >= NG && (RL == 1 || step < NG * CL || step >= NG * CL * RL);
  }

  // Add the sums of the team's lanes. Where their number is even, two lanes take half each.
  template <int COUNT, int STEP>
  __device__ __forceinline__ void add_step() {
    if constexpr (STEP == 0) {
      count = COUNT;
    } else if constexpr (!shared_sums(STEP)) {
      add_step<COUNT, STEP / 2>();
    } else if constexpr (COUNT % 2 == 0) {
      const bool upper = lane & STEP;
#pragma unroll
      for (int i = 0; i < COUNT / 2; ++i) {
        const A own = upper ? sum[i + COUNT / 2] : sum[i];
        const A other = upper ? sum[i] : sum[i + COUNT / 2];
        sum[i] = own + shuffle(other, warp_lane ^ STEP);
      }
      if (upper) first += COUNT / 2;
      add_step<COUNT / 2, STEP / 2>();
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) sum[i] = sum[i] + shuffle(sum[i], warp_lane ^ STEP);
      owner = owner && !(lane & STEP);
      add_step<COUNT, STEP / 2>();
    }
  }

  __device__ __forceinline__ void add_lanes() {
    first = 0;
    owner = true;
    add_step<SUMS, TEAM / 2>();
  }

  // Call use(r, n, sum) for what this lane holds: sums of row r of the block, column n.
  template <typename Use>
  __device__ __forceinline__ void each(Use use) {
    if (!owner) return;
#pragma unroll
    for (int j = 0; j < SUMS; ++j) {
      if (j < count) {
        const int i = (first + j) / NV, v = (first + j) % NV;
        if (has_row(i) && has_out(v)) use(row_of(i), ng * NV + v, sum[j]);
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT)
    bsr_addmm_vector(const __grid_constant__ SpmvOperands operands, A* partials,
                     const __grid_constant__ Config::Op::Args epilogue) {
  const WarpRows mine(operands, partials, epilogue, TEAMS);
  if (mine.none) return;
  const int lane = threadIdx.x % 32;
  const long long first = mine.first + lane / TEAM;

  Team team(lane);
  const View& dense = operands.dense;
  const T* values = mine.values + team.row_of(0) * BK + team.cl * CV;
  const INDEX* columns = mine.columns;
  const T* panel = mine.dense + team.cl * CV * dense.row + team.ng * NV * dense.col;

  auto blocks_of = [&](const RowSplit& split) -> Blocks {
    const long long start = split.begin + team.slot;
    const bool takes = TEAM % LANES == 0 || team.slot < SLOTS;
    return {values + start * BLOCK, columns + start,
            takes ? int(split.end - split.begin) - team.slot : 0};
  };

  // A row's bounds are prefetched two rows ahead, its columns one row ahead.
  RowSplit split = mine.split_at(first), next = mine.split_at(first + TEAMS);
  Blocks row = blocks_of(split);
  team.load_columns(row.columns, row.left);
#pragma unroll 1
  for (int round = 0; round < operands.problem.rounds; ++round) {
    const bool works = first + round * TEAMS < mine.rows;
    if (!__any_sync(0xffffffffu, works)) break;
    const Blocks next_row = blocks_of(next);
    const RowSplit after = mine.split_at(first + (round + 2) * TEAMS);
    team.multiply(row, next_row, mine, panel);
    team.add_lanes();
    if (works) team.each([&](int r, int n, A sum) { mine.store(split, r, n, sum); });
    split = next;
    row = next_row;
    next = after;
  }
}
