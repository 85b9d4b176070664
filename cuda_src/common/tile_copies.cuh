// How the threads of a thread block copy a tile of an operand to shared memory, for any layout.
#pragma once

#include "common/ceil_div.cuh"
#include "ptx/cp_async.cuh"

namespace sparsegpu {

// How neighbouring threads copy an operand: 16-byte vectors of its rows, or element by element
// along its rows or its columns.
enum class CopyOrder { vectors, rows, columns };

constexpr int power_of_two_below(int n) {
  int p = 1;
  while (2 * p <= n) p *= 2;
  return p;
}

// A thread's share of COPIES_X x COPIES_Y copies: (x, y) first, and then ACROSS and DOWN further.
// ACROSS neighbouring threads, a power of two, take neighbouring x.
template <int THREADS, int ACROSS, int COPIES_X, int COPIES_Y>
struct ThreadShare {
  static constexpr int DOWN = THREADS / ACROSS;
  static_assert(THREADS % ACROSS == 0, "whole rows of threads");

  static __device__ __forceinline__ int x() { return threadIdx.x % ACROSS; }
  static __device__ __forceinline__ int y() { return threadIdx.x / ACROSS; }

  // Call copy(dx, dy) for every x() + dx, y() + dy.
  template <typename Copy>
  static __device__ __forceinline__ void each(Copy copy) {
#pragma unroll
    for (int dx = 0; dx < COPIES_X; dx += ACROSS)
#pragma unroll
      for (int dy = 0; dy < COPIES_Y; dy += DOWN)
        if ((COPIES_X % ACROSS == 0 || x() + dx < COPIES_X) &&
            (COPIES_Y % DOWN == 0 || y() + dy < COPIES_Y))
          copy(dx, dy);
  }
};

// The copies of a HEIGHT x WIDTH tile of elements E, whose rows are PITCH bytes apart in shared
// memory. All go through L1: 16-byte copies that bypass it were measured to cost the L2 half as
// many bytes again.
template <typename E, int THREADS, CopyOrder ORDER, int HEIGHT, int WIDTH, int PITCH>
struct TileCopies {
  static constexpr bool BY_COLUMN = ORDER == CopyOrder::columns;
  static constexpr int SIZE = sizeof(E);
  static constexpr int LENGTH = ORDER == CopyOrder::vectors ? 16 / SIZE : 1;  // of a copy
  static constexpr int COPIES_X = (BY_COLUMN ? HEIGHT : WIDTH) / LENGTH;
  // Eight threads go along a column, so that the four columns of a warp share no bank.
  static constexpr int ACROSS =
      BY_COLUMN ? 8 : power_of_two_below(COPIES_X < THREADS ? COPIES_X : THREADS);
  typedef ThreadShare<THREADS, ACROSS, COPIES_X, BY_COLUMN ? WIDTH : HEIGHT> Share;
  // A thread's copies are of the columns column(), column() + COLUMN_STEP, ...
  static constexpr int COLUMN_STEP = BY_COLUMN ? Share::DOWN : ACROSS * LENGTH;
  static constexpr int COLUMNS = ceil_div(WIDTH, COLUMN_STEP);

  static __device__ __forceinline__ int row() { return BY_COLUMN ? Share::x() : Share::y(); }
  static __device__ __forceinline__ int column() {
    return BY_COLUMN ? Share::y() : Share::x() * LENGTH;
  }

  // Copy element (row() + r, column() + c), which `from(r, c)` points to, if wanted(r, c); the
  // element is zero unless exists(r, c).
  template <typename From, typename Wanted, typename Exists>
  static __device__ __forceinline__ void run(unsigned char* tile, From from, Wanted wanted,
                                             Exists exists) {
    unsigned char* to = tile + row() * PITCH + column() * SIZE;
    Share::each([&](int dx, int dy) {
      const int r = BY_COLUMN ? dx : dy, c = BY_COLUMN ? dy : dx * LENGTH;
      if (wanted(r, c))
        cp_async<LENGTH * SIZE, true>(to + r * PITCH + c * SIZE, from(r, c), exists(r, c));
    });
  }
};

// The row m of the left operand and the term k that stand at row r and column c of its tile, which
// is left[k][m] (BY_TERM) or left[m][k], and those of a thread's first copy.
template <typename Copies, bool BY_TERM>
struct LeftPlaces {
  static __device__ __forceinline__ int m_of(int r, int c) { return BY_TERM ? c : r; }
  static __device__ __forceinline__ int k_of(int r, int c) { return BY_TERM ? r : c; }
  static __device__ __forceinline__ int first_m() { return m_of(Copies::row(), Copies::column()); }
  static __device__ __forceinline__ int first_k() { return k_of(Copies::row(), Copies::column()); }
};

}  // namespace sparsegpu
