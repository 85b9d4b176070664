"""Steps of the stabilised biconjugate gradient method."""

from __future__ import annotations

import numpy as np

from . import CONVERGED, GOES_ON, ITERATED, NORM, TOLERANCE

#: After the common rows: products with the shadow residual, before and now; of v; the residual's
#: square; t^H r, t^H t; the factors; and what rho has to exceed over the residual norm.
RHO, BEFORE, ALONG, SQUARE, TS, TT = range(2, 8)
ALPHA, MINUS_ALPHA, OMEGA, MINUS_OMEGA, BETA, BACK, LEAST = range(8, 15)
ROWS = 15

#: SciPy's codes of what cannot go on: no component along the shadow residual, no second step.
NO_RHO, NO_OMEGA = -10, -11


def length(n, j):
    """Find how far to go first."""
    if not abs(n[RHO, j]) > n[LEAST, j].real * n[NORM, j].real:
        return NO_RHO
    if n[OMEGA, j] == 0 or n[ALONG, j] == 0 or not np.isfinite(n[OMEGA, j]):
        return NO_OMEGA
    n[BEFORE, j] = n[RHO, j]
    n[ALPHA, j] = n[RHO, j] / n[ALONG, j]
    n[MINUS_ALPHA, j] = -n[ALPHA, j]
    return GOES_ON


def second(n, j):
    """Find how far to go then: nowhere, if half an iteration is enough."""
    n[OMEGA, j] = 0
    if np.sqrt(n[SQUARE, j].real) > n[TOLERANCE, j].real and n[TT, j] != 0:
        n[OMEGA, j] = n[TS, j] / n[TT, j]
    n[MINUS_OMEGA, j] = -n[OMEGA, j]
    return GOES_ON


def direction(n, j):
    """Find what the next direction takes of this one."""
    n[BETA, j] = 0
    if n[OMEGA, j] != 0:  # else the next iteration says that it cannot go on
        n[BETA, j] = n[RHO, j] / n[BEFORE, j] * (n[ALPHA, j] / n[OMEGA, j])
    n[BACK, j] = n[BETA, j] * -n[OMEGA, j]
    n[NORM, j] = np.sqrt(n[SQUARE, j].real)
    return CONVERGED if n[NORM, j].real <= n[TOLERANCE, j].real else ITERATED


STEPS = {
    "length": (length, False),
    "second": (second, False),
    "direction": (direction, True),
}
