"""Steps of the minimum residual method: a rotation of the tridiagonal matrix, and its tests."""

from __future__ import annotations

import numpy as np

from . import CONVERGED, GOES_ON, ITERATED, NORM, TOLERANCE

#: After the common rows: dot products (r^T y, v^T A v, x^T x) and factors of vectors.
SQUARE, ALONG, LENGTH, OVER_BETA, OVER_OLD, CURVED, OVER_GAMMA, C1, C2, PHI = range(2, 12)
#: The entries of the tridiagonal matrix, the last rotation, and what it leaves for the next.
BETA, OLD, EPSILON, D_BAR, COSINE, SINE, ROOT = range(12, 19)
#: For the tests: the first residual norm, norm(A) squared, the extreme gammas, norm(A r), whether
#: an iteration was made; and what was asked for, and the dtype's precision.
FIRST, TOTAL, LARGEST, SMALLEST, OF_A, BEGUN, RTOL, EPS = range(19, 27)
ROWS = 27

#: The code of a preconditioner that shows itself indefinite.
INDEFINITE = -2


def lanczos(n, j):
    """Find what to take out of the next vector."""
    n[CURVED, j] = -n[ALONG, j] / n[BETA, j]
    return GOES_ON


def rotate(n, j):
    """Rotate the last column by the rotation before, and by the one that annihilates beta."""
    if n[SQUARE, j] < 0:
        return INDEFINITE
    old, along = n[BETA, j], n[ALONG, j]
    beta = np.sqrt(n[SQUARE, j])
    n[OLD, j], n[BETA, j] = old, beta
    n[TOTAL, j] += along * along + old * old + beta * beta
    n[OVER_OLD, j] = -beta / old if old != 0 else 0

    before, cosine, sine = n[EPSILON, j], n[COSINE, j], n[SINE, j]
    delta = cosine * n[D_BAR, j] + sine * along
    g_bar = sine * n[D_BAR, j] - cosine * along
    n[EPSILON, j], n[D_BAR, j] = sine * beta, -cosine * beta
    n[ROOT, j] = np.hypot(g_bar, n[D_BAR, j])
    n[OF_A, j] = n[NORM, j] * n[ROOT, j]
    gamma = max(np.hypot(g_bar, beta), n[EPS, j])
    n[COSINE, j], n[SINE, j] = g_bar / gamma, beta / gamma
    n[PHI, j] = n[COSINE, j] * n[NORM, j]
    n[NORM, j] = n[SINE, j] * n[NORM, j]
    n[OVER_GAMMA, j], n[C1, j], n[C2, j] = 1 / gamma, -before / gamma, -delta / gamma
    n[OVER_BETA, j] = 1 / beta
    n[LARGEST, j] = max(n[LARGEST, j], gamma)
    n[SMALLEST, j] = min(n[SMALLEST, j], gamma)
    return GOES_ON


def test(n, j):
    """Make SciPy's tests: a small residual, a small one of least squares, or no more digits."""
    eps, norm_a = n[EPS, j], np.sqrt(n[TOTAL, j])
    goal = norm_a * np.sqrt(n[LENGTH, j])
    n[TOLERANCE, j] = n[RTOL, j] * goal
    least = max(n[RTOL, j], eps / 2)
    done = n[NORM, j] <= least * goal or n[ROOT, j] <= least * norm_a
    done = done or n[LARGEST, j] >= 0.1 / eps * n[SMALLEST, j]
    done = done or goal * eps >= n[FIRST, j] or n[OF_A, j] == 0
    done = done or (n[BEGUN, j] == 0 and n[BETA, j] <= 10 * eps * n[FIRST, j])
    n[BEGUN, j] = 1
    return CONVERGED if done else ITERATED


STEPS = {"lanczos": (lanczos, False), "rotate": (rotate, False), "test": (test, True)}
