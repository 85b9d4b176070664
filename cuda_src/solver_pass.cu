// A pass over the vectors of a solver: linear combinations, dot products of what they became, and
// what the solver computes of these numbers, all in one launch.
//
// Every thread keeps to one column. Sums have a fixed order: of a thread, of its thread block, and
// of all thread blocks, which the last one to finish adds. That one makes the step, column by
// column. So no number leaves the device, and the pass after this one finds its factors in memory.
//
// -DT (f32, f64, c64, c128); -DTERMS, the program: {target, vector, row of its factor or -1,
// whether it is the last of its target}, ..., TERM_COUNT of them; -DDOTS: {row, u, v}, ...,
// DOT_COUNT; -DSTEP: NoStep or a step of solver_pass/*.cuh; -DCOLUMNS: those of a thread block, a
// power of two; -DROWS: consecutive rows that a thread loads at once, more than 1 only of single
// columns.
#include "common/last_block.cuh"
#include "common/warp_reduce.cuh"
#include "solver_pass/bicgstab.cuh"
#include "solver_pass/cg.cuh"
#include "solver_pass/minres.cuh"

using namespace sparsegpu;

typedef Wide<T>::type W;

constexpr int THREADS = 256, WARPS = THREADS / 32, VECTORS = 8;

struct Term {
  int target, vector, number;
  bool last;
};
struct Dot {
  int number, u, v;
};
constexpr Term PROGRAM[TERM_COUNT + 1] = {TERMS};
constexpr Dot PRODUCTS[DOT_COUNT + 1] = {DOTS};

// The kernel's argument (engines/cuda/vector.py).
struct SolverPass {
  T *v0, *v1, *v2, *v3, *v4, *v5, *v6, *v7;
  W *numbers, *partials;
  unsigned* done;    // one for each tile of columns, zeros
  const u8* active;  // or null: all
  // Of columns: whether they are active, moved, converged; iterations, code, rounds; norms.
  u8* flags;
  long long* counts;
  double* history;
  long long rows, columns, every;
  int tiles, blocks;  // of columns; thread blocks of each
};

// Whether the elements of a vector are needed before, and after it was written.
constexpr bool is_read(int v) {
  for (int t = 0; t < TERM_COUNT; ++t) {
    if (PROGRAM[t].vector == v) return true;
    if (PROGRAM[t].last && PROGRAM[t].target == v) return false;
  }
  for (int d = 0; d < DOT_COUNT; ++d)
    if (PRODUCTS[d].u == v || PRODUCTS[d].v == v) return true;
  return false;
}
constexpr bool is_written(int v) {
  for (int t = 0; t < TERM_COUNT; ++t)
    if (PROGRAM[t].target == v) return true;
  return false;
}

struct alignas(sizeof(T) * ROWS) Elements {
  T row[ROWS];
};

// Rows of all vectors, in registers.
struct Rows {
  Elements of[VECTORS];

  __device__ __forceinline__ void load(T* const (&vectors)[VECTORS], long long at, bool whole,
                                       int count, bool moves) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      if (!is_read(v) && (moves || !is_written(v))) continue;
      if (whole) {
        of[v] = *reinterpret_cast<const Elements*>(vectors[v] + at);
      } else {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) of[v].row[i] = i < count ? vectors[v][at + i] : T(0);
      }
    }
  }

  __device__ __forceinline__ void combine(const T (&factors)[TERM_COUNT + 1]) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      T sum = T(0);
#pragma unroll
      for (int t = 0; t < TERM_COUNT; ++t) {
        const T x = of[PROGRAM[t].vector].row[i];
        const bool first = t == 0 || PROGRAM[t - 1].last;
        if (PROGRAM[t].number < 0)
          sum = first ? x : sum + x;
        else
          sum = first ? factors[t] * x : fma_acc(factors[t], x, sum);
        if (PROGRAM[t].last) of[PROGRAM[t].target].row[i] = sum;
      }
    }
  }

  __device__ __forceinline__ void store(T* const (&vectors)[VECTORS], long long at, bool whole,
                                        int count) const {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      if (!is_written(v)) continue;
      if (whole) {
        *reinterpret_cast<Elements*>(vectors[v] + at) = of[v];
      } else {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
          if (i < count) vectors[v][at + i] = of[v].row[i];
      }
    }
  }

  // Rows behind the last are zeros in all vectors.
  __device__ __forceinline__ void add_products(W (&sums)[DOT_COUNT + 1]) const {
#pragma unroll
    for (int d = 0; d < DOT_COUNT; ++d)
#pragma unroll
      for (int i = 0; i < ROWS; ++i)
        sums[d] = fma_acc(conjugate(widened(of[PRODUCTS[d].u].row[i])),
                          widened(of[PRODUCTS[d].v].row[i]), sums[d]);
  }
};

// What other thread blocks of this launch wrote is in L2.
__device__ __forceinline__ f64 from_l2(const f64* at) {
  return __ldcg(at);
}
__device__ __forceinline__ c128 from_l2(const c128* at) {
  return {__ldcg(&at->re), __ldcg(&at->im)};
}

// The sums over the thread block of each column, in the threads below COLUMNS.
__device__ __forceinline__ void add_threads(W (&sums)[DOT_COUNT + 1]) {
  __shared__ W of_warps[(DOT_COUNT + 1) * WARPS * COLUMNS];
  __syncthreads();
#pragma unroll
  for (int d = 0; d < DOT_COUNT; ++d) {
#pragma unroll
    for (int mask = 16; mask >= COLUMNS; mask /= 2) sums[d] += shuffle_xor(sums[d], mask);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane < COLUMNS) of_warps[(d * WARPS + warp) * COLUMNS + lane] = sums[d];
  }
  __syncthreads();
  if (threadIdx.x < COLUMNS) {
#pragma unroll
    for (int d = 0; d < DOT_COUNT; ++d) {
      sums[d] = W(0);
#pragma unroll
      for (int warp = 0; warp < WARPS; ++warp)
        sums[d] += of_warps[(d * WARPS + warp) * COLUMNS + threadIdx.x];
    }
  }
}

// Make the step of a column and write down what becomes of it (_solver_steps.after_pass).
__device__ __forceinline__ void make_step(const SolverPass& pass, long long column) {
  const long long r = pass.columns;
  const Column<W> numbers = {pass.numbers + column, r};
  u8* const flags = pass.flags + column;
  long long* const counts = pass.counts + column;
  u8 &active = flags[0], &moving = flags[r], &converged = flags[2 * r];
  long long &steps = counts[0], &code = counts[r], &rounds = counts[2 * r];
  if (active) {
    const int became = STEP::run(numbers);
    if (became != GOES_ON) {
      moving = became == ITERATED || became == CONVERGED;
      converged = became == CONVERGED;
      steps += moving;
      code = moving ? 0 : became;
      active = became == ITERATED && is_finite(numbers[NORM]);
    }
  } else if (STEP::last) {
    moving = false;
  }
  if (STEP::last) {
    pass.history[rounds % pass.every * r + column] = numbers.real(NORM);
    ++rounds;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    solver_pass(const __grid_constant__ SolverPass pass) {
  const int tile = blockIdx.x % pass.tiles, block = blockIdx.x / pass.tiles;
  const int lane = threadIdx.x % COLUMNS;
  const long long column = (long long)tile * COLUMNS + lane;
  const bool exists = column < pass.columns;
  const bool moves = exists && (!pass.active || pass.active[column]);
  W sums[DOT_COUNT + 1];
#pragma unroll
  for (int d = 0; d <= DOT_COUNT; ++d) sums[d] = W(0);

  if (moves || (exists && STEP::none && DOT_COUNT > 0)) {
    T* const vectors[VECTORS] = {pass.v0, pass.v1, pass.v2, pass.v3,
                                 pass.v4, pass.v5, pass.v6, pass.v7};
    T factors[TERM_COUNT + 1];
#pragma unroll
    for (int t = 0; t < TERM_COUNT; ++t)
      if (PROGRAM[t].number >= 0)
        factors[t] = Narrowed<T>::from(pass.numbers[PROGRAM[t].number * pass.columns + column]);
    const long long stride = (long long)pass.blocks * (THREADS / COLUMNS) * ROWS;
    long long row = ((long long)block * (THREADS / COLUMNS) + threadIdx.x / COLUMNS) * ROWS;
#pragma unroll 1
    for (; row < pass.rows; row += stride) {
      const bool whole = row + ROWS <= pass.rows;
      const long long at = row * pass.columns + column;
      const int count = int(pass.rows - row);
      Rows rows;
      rows.load(vectors, at, whole, count, moves);
      if (moves) {
        rows.combine(factors);
        rows.store(vectors, at, whole, count);
      }
      rows.add_products(sums);
    }
  }
  if constexpr (DOT_COUNT > 0) {
    add_threads(sums);
    W* const partials = pass.partials + (long long)tile * DOT_COUNT * pass.blocks * COLUMNS;
    if (threadIdx.x < COLUMNS) {
#pragma unroll
      for (int d = 0; d < DOT_COUNT; ++d)
        partials[(d * pass.blocks + block) * COLUMNS + lane] = sums[d];
    }
    if (!last_done(pass.done + tile, pass.blocks)) return;
#pragma unroll
    for (int d = 0; d < DOT_COUNT; ++d) {
      sums[d] = W(0);
      for (int b = threadIdx.x / COLUMNS; b < pass.blocks; b += THREADS / COLUMNS)
        sums[d] += from_l2(partials + (d * pass.blocks + b) * COLUMNS + lane);
    }
    add_threads(sums);
    if (threadIdx.x == 0) pass.done[tile] = 0;
    if (threadIdx.x < COLUMNS && exists) {
#pragma unroll
      for (int d = 0; d < DOT_COUNT; ++d)
        if (moves || STEP::none) pass.numbers[PRODUCTS[d].number * pass.columns + column] = sums[d];
      if constexpr (!STEP::none) make_step(pass, column);
    }
  }
}
