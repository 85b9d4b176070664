// A pass over a basis and a vector w: w without its part along some vectors of the basis, and the
// products of what is left with others; or x with a combination of some added. One launch.
//
// Threads, sums and the step are those of solver_pass.cu. Which vectors they are is known at the
// launch only, so that one kernel serves every iteration of a cycle.
//
// -DT (f32, f64, c64, c128); -DSTEP: NoStep or a step of solver_pass/gmres.cuh; -DADDS: whether
// the vectors are added, each in the columns that have made its iteration, and nothing else is
// done; -DCOLUMNS, -DROWS: as in solver_pass.cu.
#include "solver_pass/column_sums.cuh"
#include "solver_pass/gmres.cuh"

using namespace sparsegpu;
using gmres::FIRST;
using gmres::GROUP;

typedef Wide<T>::type W;

// The kernel's argument (engines/cuda/arnoldi.py).
struct SolverBasis {
  const T* basis;
  T* w;
  W *numbers, *partials;
  unsigned* done;  // one for each tile of columns, zeros
  const u8* active;
  // Of columns: whether they are active, moved, converged; iterations, code, rounds; norms.
  u8* flags;
  long long* counts;
  double* history;
  long long rows, columns, every;
  long long stride;        // from one vector of the basis to the next, in elements
  int tiles, blocks;       // of columns; thread blocks of each
  int taken, first, last;  // vectors taken..first are taken out, first..last multiplied
  int square;              // the row that the square of what is left goes to, or -1
};

struct alignas(sizeof(T) * ROWS) Elements {
  T row[ROWS];

  __device__ __forceinline__ void load(const T* at, bool whole, int count) {
    if (whole) {
      *this = *reinterpret_cast<const Elements*>(at);
    } else {
#pragma unroll
      for (int i = 0; i < ROWS; ++i) row[i] = i < count ? at[i] : T(0);
    }
  }

  __device__ __forceinline__ void store(T* at, bool whole, int count) const {
    if (whole) {
      *reinterpret_cast<Elements*>(at) = *this;
    } else {
#pragma unroll
      for (int i = 0; i < ROWS; ++i)
        if (i < count) at[i] = row[i];
    }
  }

  // The sum of conj(this) * other; rows behind the last are zeros.
  __device__ __forceinline__ W product(const Elements& other, W sum) const {
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
      sum = fma_acc(conjugate(widened(row[i])), widened(other.row[i]), sum);
    return sum;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    solver_basis(const __grid_constant__ SolverBasis pass) {
  const int tile = blockIdx.x % pass.tiles, block = blockIdx.x / pass.tiles;
  const int lane = threadIdx.x % COLUMNS;
  const long long column = (long long)tile * COLUMNS + lane;
  const bool moves = column < pass.columns && pass.active[column];
  const int dots = pass.last - pass.first;
  const auto numbers = column_of(pass.numbers, pass.columns, column);
  W sums[GROUP + 1];
#pragma unroll
  for (int d = 0; d <= GROUP; ++d) sums[d] = W(0);

  if (moves) {
    int count = pass.first - pass.taken;
    if (ADDS) count = min(count, int(numbers.real(gmres::MADE)) - pass.taken);
    T factors[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; ++i) {
      if (i >= count) break;
      const W number = numbers[FIRST + pass.taken + i];
      factors[i] = Narrowed<T>::from(ADDS ? number : -number);
    }
    const long long step = (long long)pass.blocks * (THREADS / COLUMNS) * ROWS;
    long long row = ((long long)block * (THREADS / COLUMNS) + threadIdx.x / COLUMNS) * ROWS;
#pragma unroll 1
    for (; row < pass.rows; row += step) {
      const bool whole = row + ROWS <= pass.rows;
      const int left = int(pass.rows - row);
      const T* const basis = pass.basis + row * pass.columns + column;
      T* const to = pass.w + row * pass.columns + column;
      Elements w, v[GROUP];
      w.load(to, whole, left);
#pragma unroll
      for (int i = 0; i < GROUP; ++i)
        if (i < count) v[i].load(basis + (pass.taken + i) * pass.stride, whole, left);
#pragma unroll
      for (int i = 0; i < GROUP; ++i)
        if (i < count)
#pragma unroll
          for (int e = 0; e < ROWS; ++e) w.row[e] = fma_acc(factors[i], v[i].row[e], w.row[e]);
      if (count > 0) w.store(to, whole, left);
      if constexpr (!ADDS) {
        sums[0] = w.product(w, sums[0]);
#pragma unroll
        for (int i = 0; i < GROUP; ++i)
          if (i < dots) v[i].load(basis + (pass.first + i) * pass.stride, whole, left);
#pragma unroll
        for (int i = 0; i < GROUP; ++i)
          if (i < dots) sums[1 + i] = v[i].product(w, sums[1 + i]);
      }
    }
  }
  if constexpr (!ADDS) {
    W* const partials = pass.partials + (long long)tile * (dots + 1) * pass.blocks * COLUMNS;
    unsigned* const done = pass.done + tile;
    if (!add_blocks<COLUMNS>(sums, dots + 1, partials, done, block, pass.blocks)) return;
    if (threadIdx.x < COLUMNS && moves) {
      if (pass.square >= 0) numbers[pass.square] = sums[0];
#pragma unroll
      for (int i = 0; i < GROUP; ++i)
        if (i < dots) numbers[FIRST + pass.first + i] = sums[1 + i];
    }
    if constexpr (!STEP::none)
      if (threadIdx.x < COLUMNS && column < pass.columns) make_step<STEP>(pass, column);
  }
}
