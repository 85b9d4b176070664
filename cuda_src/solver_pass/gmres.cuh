// Steps of the generalised minimum residual method: twins of
// sparsegpu/engines/_solver_steps/gmres.py.
#pragma once

#include "solver_pass/column.cuh"

namespace sparsegpu {
namespace gmres {

constexpr int GROUP = 8;
enum { SQUARE = 2, BEFORE, SCALE, MINUS };
enum { MADE = 6, MOST, SIZE, SPENT };
enum { GOAL = 10, FACTOR, RESIDUAL, EPS, FIRST };

// Numbers that a step loads at once, for none of them to wait for the others.
constexpr int AT_ONCE = 8;

struct start {
  static constexpr bool none = false, last = false;
  template <typename W>
  static __device__ int run(const Column<W>& n) {
    const f64 norm = sqrt(n.real(SQUARE));
    n[NORM] = W(norm);
    n[MADE] = n[SPENT] = W(0);
    if (!(norm > 0 && is_finite(norm))) {
      n[SPENT] = W(1);
      return 0;
    }
    n[SCALE] = W(1 / norm);
    n[FIRST + 3 * int(n.real(SIZE)) + 1] = W(norm);
    return GOES_ON;
  }
};

struct rotate {
  static constexpr bool none = false, last = true;

  // Apply the k rotations so far to the newest column; return its last entry.
  template <typename W>
  static __device__ W apply_rotations(const Column<W>& n, int k, int cosine, int sine, int column) {
    W entry = n[FIRST];
    for (int first = 0; first < k; first += AT_ONCE) {
      W c[AT_ONCE], s[AT_ONCE], below[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        if (first + i >= k) break;
        c[i] = n[cosine + first + i];
        s[i] = n[sine + first + i];
        below[i] = n[FIRST + first + i + 1];
      }
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        if (first + i >= k) break;
        n[column + first + i] = c[i] * entry + s[i] * below[i];
        entry = c[i] * below[i] - conjugate(s[i]) * entry;
      }
    }
    return entry;
  }

  // Solve the triangular system of k columns; the answer replaces the coefficients.
  template <typename W>
  static __device__ void solve(const Column<W>& n, int k, int right, int triangle) {
    for (int last = k - 1; last >= 0; --last) {
      const int column = triangle + last * (last + 1) / 2;
      const W diagonal = n[column + last];
      const W y = is_zero(diagonal) ? W(0) : over(n[right + last], diagonal);
      n[FIRST + last] = y;
      for (int first = 0; first < last; first += AT_ONCE) {
        W b[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
          if (first + i < last) b[i] = n[right + first + i] - n[column + first + i] * y;
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
          if (first + i < last) n[right + first + i] = b[i];
      }
    }
  }

  template <typename W>
  static __device__ int run(const Column<W>& n) {
    const int size = int(n.real(SIZE));
    int k = int(n.real(MADE));
    const int cosine = FIRST + size + 1, sine = cosine + size;
    const int right = cosine + 2 * size, triangle = cosine + 3 * size + 1;
    const int column = triangle + k * (k + 1) / 2;
    f64 length = sqrt(n.real(SQUARE));
    const bool exact = length <= n.real(EPS) * sqrt(n.real(BEFORE));
    if (exact) length = 0;
    const W entry = apply_rotations(n, k, cosine, sine, column);
    const f64 size_of_entry = modulus(entry), root = hypot(size_of_entry, length);
    int became = 0;
    n[SPENT] = W(1);
    if (is_finite(root)) {
      n[SPENT] = W(exact ? 1 : 0);
      n[SCALE] = W(exact ? 0 : 1 / length);
      f64 c = root > 0 ? 0 : 1;
      W s = W(root > 0 ? 1 : 0), phase = W(1);
      if (size_of_entry > 0) {
        phase = entry * W(1 / size_of_entry);
        c = size_of_entry / root;
        s = phase * W(length / root);
      }
      n[column + k] = phase * W(root);
      n[cosine + k] = W(c);
      n[sine + k] = s;
      const W above = n[right + k], below = -conjugate(s) * above;
      n[right + k] = W(c) * above;
      n[right + k + 1] = below;
      n[NORM] = W(modulus(below));
      n[MADE] = W(++k);
      became = exact || n.real(NORM) <= n.real(GOAL) ? CONVERGED : ITERATED;
    }
    if (became != ITERATED || k == int(n.real(MOST))) solve(n, k, right, triangle);
    return became;
  }
};

struct cycle {
  static constexpr bool none = false, last = true;
  template <typename W>
  static __device__ int run(const Column<W>& n) {
    const f64 norm = n.real(NORM), residual = sqrt(n.real(SQUARE)), eps = n.real(EPS);
    f64 factor = n.real(FACTOR);
    if (norm <= n.real(GOAL))
      factor = factor / 4 > eps ? factor / 4 : eps;
    else
      factor = factor * 1.5 < 1 ? factor * 1.5 : 1;
    n[FACTOR] = W(factor);
    n[RESIDUAL] = W(residual);
    const f64 part = n.real(TOLERANCE) / residual;
    n[GOAL] = W(norm * (part < factor ? part : factor));
    if (residual <= n.real(TOLERANCE)) return CONVERGED;
    return n.real(SPENT) == 0 && is_finite(residual) ? ITERATED : EXHAUSTED;
  }
};

}  // namespace gmres
}  // namespace sparsegpu
