// Steps of the minimum residual method: twins of sparsegpu/engines/_solver_steps/minres.py.
#pragma once

#include "solver_pass/column.cuh"

namespace sparsegpu {
namespace minres {

enum { SQUARE = 2, ALONG, LENGTH, OVER_BETA, OVER_OLD, CURVED, OVER_GAMMA, C1, C2, PHI };
enum { BETA = 12, OLD, EPSILON, D_BAR, COSINE, SINE, ROOT };
enum { FIRST = 19, TOTAL, LARGEST, SMALLEST, OF_A, BEGUN, RTOL, EPS };
constexpr int INDEFINITE = -2;

struct lanczos {
  static constexpr bool none = false, last = false;
  static __device__ int run(const Column<f64>& n) {
    n[CURVED] = -n[ALONG] / n[BETA];
    return GOES_ON;
  }
};

struct rotate {
  static constexpr bool none = false, last = false;
  static __device__ int run(const Column<f64>& n) {
    if (n[SQUARE] < 0) return INDEFINITE;
    const f64 old = n[BETA], along = n[ALONG], beta = sqrt(n[SQUARE]);
    n[OLD] = old;
    n[BETA] = beta;
    n[TOTAL] += along * along + old * old + beta * beta;
    n[OVER_OLD] = old != 0 ? -beta / old : 0.0;

    const f64 before = n[EPSILON], cosine = n[COSINE], sine = n[SINE];
    const f64 delta = cosine * n[D_BAR] + sine * along;
    const f64 g_bar = sine * n[D_BAR] - cosine * along;
    n[EPSILON] = sine * beta;
    n[D_BAR] = -cosine * beta;
    n[ROOT] = hypot(g_bar, n[D_BAR]);
    n[OF_A] = n[NORM] * n[ROOT];
    const f64 length = hypot(g_bar, beta);
    const f64 gamma = length < n[EPS] ? n[EPS] : length;
    n[COSINE] = g_bar / gamma;
    n[SINE] = beta / gamma;
    n[PHI] = n[COSINE] * n[NORM];
    n[NORM] = n[SINE] * n[NORM];
    n[OVER_GAMMA] = 1 / gamma;
    n[C1] = -before / gamma;
    n[C2] = -delta / gamma;
    n[OVER_BETA] = 1 / beta;
    if (gamma > n[LARGEST]) n[LARGEST] = gamma;
    if (gamma < n[SMALLEST]) n[SMALLEST] = gamma;
    return GOES_ON;
  }
};

struct test {
  static constexpr bool none = false, last = true;
  static __device__ int run(const Column<f64>& n) {
    const f64 eps = n[EPS], norm_a = sqrt(n[TOTAL]), goal = norm_a * sqrt(n[LENGTH]);
    n[TOLERANCE] = n[RTOL] * goal;
    const f64 least = n[RTOL] > eps / 2 ? n[RTOL] : eps / 2;
    bool done = n[NORM] <= least * goal || n[ROOT] <= least * norm_a;
    done = done || n[LARGEST] >= 0.1 / eps * n[SMALLEST];
    done = done || goal * eps >= n[FIRST] || n[OF_A] == 0;
    done = done || (n[BEGUN] == 0 && n[BETA] <= 10 * eps * n[FIRST]);
    n[BEGUN] = 1;
    return done ? CONVERGED : ITERATED;
  }
};

}  // namespace minres
}  // namespace sparsegpu
