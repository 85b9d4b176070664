"""Steps of the conjugate gradient method."""

from __future__ import annotations

import numpy as np

from . import CONVERGED, GOES_ON, ITERATED, NORM, TOLERANCE

#: After the common rows: r^H z before and after the step, p^H A p, r^H r, and the factors.
RHO, FOLLOWING, CURVATURE, SQUARE, ALPHA, MINUS_ALPHA, BETA = range(2, 9)
ROWS = 9


def length(n, j):
    """Find how far to go; a direction without curvature, or no residual, ends it."""
    if n[CURVATURE, j] == 0 or n[RHO, j] == 0:
        return 0
    alpha = n[RHO, j] / n[CURVATURE, j]
    if not np.isfinite(alpha):
        return 0
    n[ALPHA, j], n[MINUS_ALPHA, j] = alpha, -alpha
    return GOES_ON


def direction(n, j):
    """Find the next direction's share of this one; without M, r^H z is r^H r."""
    n[BETA, j] = n[SQUARE, j] / n[RHO, j]
    n[RHO, j] = n[SQUARE, j]
    n[NORM, j] = np.sqrt(n[SQUARE, j].real)
    return CONVERGED if n[NORM, j].real <= n[TOLERANCE, j].real else ITERATED


def preconditioned(n, j):
    """Do what `direction` does, with M."""
    n[BETA, j] = n[FOLLOWING, j] / n[RHO, j]
    n[RHO, j] = n[FOLLOWING, j]
    n[NORM, j] = np.sqrt(n[SQUARE, j].real)
    return CONVERGED if n[NORM, j].real <= n[TOLERANCE, j].real else ITERATED


STEPS = {
    "length": (length, False),
    "direction": (direction, True),
    "preconditioned": (preconditioned, True),
}
