// Steps of the conjugate gradient method: twins of sparsegpu/engines/_solver_steps/cg.py.
#pragma once

#include "solver_pass/column.cuh"

namespace sparsegpu {
namespace cg {

enum { RHO = 2, FOLLOWING, CURVATURE, SQUARE, ALPHA, MINUS_ALPHA, BETA };

struct length {
  static constexpr bool none = false, last = false;
  template <typename W>
  static __device__ int run(const Column<W>& n) {
    if (is_zero(n[CURVATURE]) || is_zero(n[RHO])) return 0;
    const W alpha = over(n[RHO], n[CURVATURE]);
    if (!is_finite(alpha)) return 0;
    n[ALPHA] = alpha;
    n[MINUS_ALPHA] = -alpha;
    return GOES_ON;
  }
};

template <int FROM>
struct NextDirection {
  static constexpr bool none = false, last = true;
  template <typename W>
  static __device__ int run(const Column<W>& n) {
    n[BETA] = over(n[FROM], n[RHO]);
    n[RHO] = n[FROM];
    n[NORM] = sqrt(n.real(SQUARE));
    return n.real(NORM) <= n.real(TOLERANCE) ? CONVERGED : ITERATED;
  }
};
typedef NextDirection<SQUARE> direction;
typedef NextDirection<FOLLOWING> preconditioned;

}  // namespace cg
}  // namespace sparsegpu
