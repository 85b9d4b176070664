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
#include "solver_pass/bicgstab.cuh"
#include "solver_pass/cg.cuh"
#include "solver_pass/column_sums.cuh"
#include "solver_pass/gmres.cuh"
#include "solver_pass/minres.cuh"

using namespace sparsegpu;

typedef Wide<T>::type W;

constexpr int VECTORS = 8;

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
    W* const partials = pass.partials + (long long)tile * DOT_COUNT * pass.blocks * COLUMNS;
    if (!add_blocks<COLUMNS>(sums, DOT_COUNT, partials, pass.done + tile, block, pass.blocks))
      return;
    if (threadIdx.x < COLUMNS && exists) {
#pragma unroll
      for (int d = 0; d < DOT_COUNT; ++d)
        if (moves || STEP::none) pass.numbers[PRODUCTS[d].number * pass.columns + column] = sums[d];
      if constexpr (!STEP::none) make_step<STEP>(pass, column);
    }
  }
}
