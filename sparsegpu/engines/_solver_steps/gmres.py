"""Steps of the generalised minimum residual method: of a cycle's start, an iteration, its end."""

from __future__ import annotations

import numpy as np

from . import CONVERGED, EXHAUSTED, GOES_ON, ITERATED, NORM, TOLERANCE

#: Vectors that one pass makes a vector orthogonal to.
GROUP = 8

#: After the common rows, of which the first is the preconditioned residual's norm: squares, now and
#: before the vector was made orthogonal; the factor that makes it a unit vector; -1.
SQUARE, BEFORE, SCALE, MINUS = range(2, 6)
#: Iterations made in this cycle; of it at most; of any; whether nothing is left to try.
MADE, MOST, SIZE, SPENT = range(6, 10)
#: What ends a cycle, as a norm, and of the tolerance; the residual's norm; the dtype's precision.
GOAL, FACTOR, RESIDUAL, EPS = range(10, 14)
#: The first of SIZE + 1 coefficients of the newest vector, at last of the correction. Behind them
#: come the cosines (SIZE), the sines (SIZE), the right side (SIZE + 1), and of the triangular
#: matrix column by column (1, 2, ..., SIZE).
FIRST = 14


def rows(size):
    """Return how many rows cycles of so many iterations take."""
    return FIRST + 4 * size + 2 + size * (size + 1) // 2


def passes(count):
    """Return what passes take out of a vector, and what they multiply it with then.

    Of each pass ``(taken, first, last)``: vectors ``taken..first``, and ``first..last``.
    """
    starts = [*range(0, count, GROUP), count]
    return list(zip([0, *starts], starts, [*starts[1:], count]))


def start(n, j):
    """Begin a cycle with the preconditioned residual, if there is one."""
    norm = np.sqrt(n[SQUARE, j].real)
    n[NORM, j], n[MADE, j], n[SPENT, j] = norm, 0, 0
    if not (norm > 0 and np.isfinite(norm)):
        n[SPENT, j] = 1
        return 0
    n[SCALE, j] = 1 / norm
    n[FIRST + 3 * int(n[SIZE, j].real) + 1, j] = norm
    return GOES_ON


def rotate(n, j):
    """Rotate the newest column by the rotations so far and one more; last, solve the system."""
    size, k = int(n[SIZE, j].real), int(n[MADE, j].real)
    cosine = FIRST + size + 1
    sine, right, triangle = cosine + size, cosine + 2 * size, cosine + 3 * size + 1
    column = triangle + k * (k + 1) // 2
    length = np.sqrt(n[SQUARE, j].real)
    exact = length <= n[EPS, j].real * np.sqrt(n[BEFORE, j].real)
    if exact:
        length = 0.0
    entry = n[FIRST, j]
    for i in range(k):
        c, s, below = n[cosine + i, j], n[sine + i, j], n[FIRST + i + 1, j]
        n[column + i, j] = c * entry + s * below
        entry = c * below - np.conj(s) * entry
    magnitude = abs(entry)
    root = np.hypot(magnitude, length)
    became = 0  # numbers that are none: the cycle ends with what it has
    n[SPENT, j] = 1
    if np.isfinite(root):
        n[SPENT, j] = 1 if exact else 0
        n[SCALE, j] = 0 if exact else 1 / length
        rotated, c, s = n[right + k, j], 1.0, entry * 0
        if magnitude > 0:
            phase = entry / magnitude
            c, s = magnitude / root, phase * length / root
            n[column + k, j] = phase * root
        else:
            n[column + k, j] = root
            if root > 0:
                c, s = 0.0, s + 1
        n[cosine + k, j], n[sine + k, j] = c, s
        n[right + k, j], n[right + k + 1, j] = c * rotated, -np.conj(s) * rotated
        n[NORM, j] = abs(n[right + k + 1, j])
        k += 1
        n[MADE, j] = k
        done = exact or n[NORM, j].real <= n[GOAL, j].real
        became = CONVERGED if done else ITERATED
    if became != ITERATED or k == int(n[MOST, j].real):
        for last in range(k - 1, -1, -1):
            column = triangle + last * (last + 1) // 2
            y = entry * 0
            if n[column + last, j] != 0:
                y = n[right + last, j] / n[column + last, j]
            n[FIRST + last, j] = y
            for i in range(last):
                n[right + i, j] -= n[column + i, j] * y
    return became


def cycle(n, j):
    """Look at the residual, and from how much the cycle brought say when to end the next."""
    norm, residual = n[NORM, j].real, np.sqrt(n[SQUARE, j].real)
    factor = n[FACTOR, j].real
    factor = max(n[EPS, j].real, factor / 4) if norm <= n[GOAL, j].real else min(1.0, factor * 1.5)
    n[FACTOR, j], n[RESIDUAL, j] = factor, residual
    n[GOAL, j] = norm * min(factor, n[TOLERANCE, j].real / residual)
    if residual <= n[TOLERANCE, j].real:
        return CONVERGED
    return ITERATED if n[SPENT, j] == 0 and np.isfinite(residual) else EXHAUSTED


STEPS = {"start": (start, False), "rotate": (rotate, True), "cycle": (cycle, True)}
