// Steps of the stabilised biconjugate gradient method: twins of
// sparsegpu/engines/_solver_steps/bicgstab.py.
#pragma once

#include "solver_pass/column.cuh"

namespace sparsegpu {
namespace bicgstab {

enum { RHO = 2, BEFORE, ALONG, SQUARE, TS, TT };
enum { ALPHA = 8, MINUS_ALPHA, OMEGA, MINUS_OMEGA, BETA, BACK, LEAST };
constexpr int NO_RHO = -10, NO_OMEGA = -11;

struct length {
  static constexpr bool none = false, last = false;
  template <typename W>
  static __device__ int run(const Column<W>& n) {
    if (!(modulus(n[RHO]) > n.real(LEAST) * n.real(NORM))) return NO_RHO;
    if (is_zero(n[OMEGA]) || is_zero(n[ALONG]) || !is_finite(n[OMEGA])) return NO_OMEGA;
    n[BEFORE] = n[RHO];
    n[ALPHA] = over(n[RHO], n[ALONG]);
    n[MINUS_ALPHA] = -n[ALPHA];
    return GOES_ON;
  }
};

struct second {
  static constexpr bool none = false, last = false;
  template <typename W>
  static __device__ int run(const Column<W>& n) {
    n[OMEGA] = W(0);
    if (sqrt(n.real(SQUARE)) > n.real(TOLERANCE) && !is_zero(n[TT])) n[OMEGA] = over(n[TS], n[TT]);
    n[MINUS_OMEGA] = -n[OMEGA];
    return GOES_ON;
  }
};

struct direction {
  static constexpr bool none = false, last = true;
  template <typename W>
  static __device__ int run(const Column<W>& n) {
    n[BETA] = W(0);
    if (!is_zero(n[OMEGA])) n[BETA] = over(n[RHO], n[BEFORE]) * over(n[ALPHA], n[OMEGA]);
    n[BACK] = n[BETA] * -n[OMEGA];
    n[NORM] = sqrt(n.real(SQUARE));
    return n.real(NORM) <= n.real(TOLERANCE) ? CONVERGED : ITERATED;
  }
};

}  // namespace bicgstab
}  // namespace sparsegpu
