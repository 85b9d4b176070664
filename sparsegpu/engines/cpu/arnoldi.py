"""A basis of orthonormal vectors that grows by one at a time, in few passes over memory.

As in `vector`, a pass goes through spans of rows, and within a span through strips that stay in the
L1 cache. It takes a group of vectors out of a strip and multiplies the strip with the next group.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._solver_steps import Step
from .._solver_steps.gmres import BEFORE, FIRST, GROUP, MADE, SCALE, SQUARE, passes
from ._jit import jit
from ._threads import for_each
from .vector import SPAN, STRIP, add_dots, add_multiple, add_products, compiled_after, dot, multiply

#: What the loops take as arguments: compiled into them, these would outlive a change (`_jit`).
_ROWS = (BEFORE, SQUARE, FIRST)


def extend_basis(
    scalars: np.ndarray,
    basis: np.ndarray,
    count: int,
    w: np.ndarray,
    newest: np.ndarray,
    active: np.ndarray,
    step: Step,
) -> Callable[[], None]:
    """Return a pass that appends the part of w that is orthogonal to the first ``count`` vectors.

    As `engines.reference.arnoldi.extend_basis` says.
    """
    n, r = w.shape
    most = max(SPAN // max(r, 1), 1)
    spans = range(0, n, most)
    sums = np.zeros((len(spans), GROUP + 1, r), scalars.dtype)
    after = compiled_after(step.name)

    def pass_over(taken: int, first: int, last: int) -> None:
        """Take out vectors ``taken..first``, multiply with those of ``first..last``."""

        def span(begin: int) -> None:
            end, of_span = min(begin + most, n), sums[begin // most]
            _span(basis, w, begin, end, scalars, taken, first, last, of_span, FIRST)

        for_each(span, spans, n * r * (last - taken + 1))
        _keep(sums, scalars, active, first, last, count, _ROWS)

    def scale(begin: int) -> None:
        for vector in (basis[count], newest):
            _scale(vector, w, begin, min(begin + most, n), scalars, active, SCALE)

    def run() -> None:
        if not r:
            return
        if len(spans) == 1:
            _extend(basis, w, scalars, active, count, sums, GROUP, _ROWS)
        else:
            for taken, first, last in passes(count):
                pass_over(taken, first, last)
        after(scalars, *step.columns)
        if len(spans) == 1:
            scale(0)
        else:
            for_each(scale, spans, n * r)

    return run


def add_combination(
    scalars: np.ndarray, basis: np.ndarray, count: int, x: np.ndarray, active: np.ndarray
) -> Callable[[], None]:
    """Return a pass that adds combinations of the vectors to x.

    As `engines.reference.arnoldi.add_combination` says.
    """
    n, r = x.shape
    most = max(SPAN // max(r, 1), 1)
    spans = range(0, n, most)

    def span(begin: int) -> None:
        _add(basis, x, begin, min(begin + most, n), scalars, active, count, MADE, FIRST)

    def run() -> None:
        if r:
            for_each(span, spans, n * r * count)

    return run


@jit(fastmath={"contract"})
def _extend(basis, w, scalars, active, count, sums, group, rows):
    """Do all passes of vectors that are one span."""
    taken, first = 0, 0
    while True:
        last = min(first + group, count)
        _span(basis, w, 0, len(w), scalars, taken, first, last, sums[0], rows[2])
        _keep(sums, scalars, active, first, last, count, rows)
        if first == count:
            break
        taken, first = first, last


@jit(fastmath={"contract"})
def _span(basis, w, begin, end, scalars, taken, first, last, sums, first_row):
    """Take ``taken..first`` out of rows ``begin..end``; put their products with ``first..last``,
    and before these the square, into ``sums``.
    """
    r = w.shape[1]
    rows = max(min(STRIP // r, end - begin), 1)
    length = rows * r if r > 1 else 1
    factors = np.empty((first - taken, length), w.dtype)
    for i in range(taken, first):
        for j in range(r):
            factors[i - taken, j::r] = -scalars[first_row + i, j]
    totals = np.zeros((last - first + 1, length), sums.dtype)
    for start in range(begin, end, rows):
        stop = min(start + rows, end)
        strip = w[start:stop].reshape(-1)
        for i in range(taken, first):
            vector = basis[i, start:stop].reshape(-1)
            if r == 1:
                add_multiple(strip, factors[i - taken, 0], vector)
            else:
                add_products(strip, factors[i - taken], vector)
        for i in range(first - 1, last):
            vector = strip if i < first else basis[i, start:stop].reshape(-1)
            if r == 1:
                totals[i - first + 1, 0] += dot(sums.dtype.type(0), vector, strip)
            else:
                add_dots(totals[i - first + 1], vector, strip)
    for i in range(len(totals)):
        for j in range(r):
            sums[i, j] = totals[i, j::r].sum()


@jit()
def _keep(sums, scalars, active, first, last, count, rows):
    """Add the sums of the spans, and write them to the rows of active columns."""
    before, square, first_row = rows
    for j in range(sums.shape[2]):
        if active[j]:
            if first == 0:
                scalars[before, j] = sums[:, 0, j].sum()
            if first == count:
                scalars[square, j] = sums[:, 0, j].sum()
            for i in range(first, last):
                scalars[first_row + i, j] = sums[:, i - first + 1, j].sum()


@jit(fastmath={"contract"})
def _scale(to, w, begin, end, scalars, active, row_of_scale):
    r = w.shape[1]
    if r == 1:
        if active[0]:
            factor = w.dtype.type(scalars[row_of_scale, 0])
            multiply(to[begin:end].reshape(-1), factor, w[begin:end].reshape(-1))
        return
    for row in range(begin, end):
        for j in range(r):
            if active[j]:
                to[row, j] = w.dtype.type(scalars[row_of_scale, j]) * w[row, j]


@jit(fastmath={"contract"})
def _add(basis, x, begin, end, scalars, active, count, row_of_made, first_row):
    r = x.shape[1]
    rows = max(min(STRIP // r, end - begin), 1)
    for start in range(begin, end, rows):
        stop = min(start + rows, end)
        for j in range(r):
            if not active[j]:
                continue
            for i in range(min(count, int(scalars[row_of_made, j].real))):
                factor = x.dtype.type(scalars[first_row + i, j])
                if r == 1:
                    strip, vector = x[start:stop].reshape(-1), basis[i, start:stop].reshape(-1)
                    add_multiple(strip, factor, vector)
                else:
                    add_multiple(x[start:stop, j], factor, basis[i, start:stop, j])
