"""A basis of orthonormal vectors that grows by one at a time, and combinations of its vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._solver_steps import Step, after_pass
from .._solver_steps.gmres import BEFORE, FIRST, GROUP, MADE, SCALE, SQUARE


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

    ``basis`` (m + 1, n, r), whose vectors are contiguous, and ``scalars`` (k, r) are as
    `vector.prepare` takes them, with the rows of `engines._solver_steps.gmres`. ``scalars[BEFORE]``
    becomes the square of w. Then a group of `GROUP` vectors after the other is taken out of w:
    ``scalars[FIRST + i] = sum of conj(basis[i]) * w``, of all of the group, before ``w -=
    scalars[FIRST + i] * basis[i]``. ``scalars[SQUARE]`` becomes the square of the rest, and the
    step is made. At last ``basis[count] = newest = scalars[SCALE] * w``.

    All is for the columns that are ``active`` when the pass runs, the last one for those that still
    are after the step. w is memory that the pass may change in any column.
    """
    after = after_pass(step.name)

    def square(row: int) -> None:
        of_w = (w.conj() * w).sum(axis=0, dtype=scalars.dtype)
        np.copyto(scalars[row], of_w, where=active)

    def run() -> None:
        with np.errstate(all="ignore"):
            square(BEFORE)
            for first in range(0, count, GROUP):
                group = basis[first : min(first + GROUP, count)]
                rows = scalars[FIRST + first : FIRST + first + len(group)]
                products = (group.conj() * w).sum(axis=1, dtype=scalars.dtype)
                np.copyto(rows, products, where=active)
                for coefficient, vector in zip(products, group):
                    w[...] -= coefficient.astype(w.dtype) * vector
            square(SQUARE)
            after(scalars, *step.columns)
            unit = scalars[SCALE].astype(w.dtype) * w
            for vector in (basis[count], newest):
                np.copyto(vector, unit, where=active)

    return run


def add_combination(
    scalars: np.ndarray, basis: np.ndarray, count: int, x: np.ndarray, active: np.ndarray
) -> Callable[[], None]:
    """Return a pass that adds ``scalars[FIRST + i] * basis[i]`` to x in the columns of ``active``.

    For each i below ``count`` and below ``scalars[MADE]`` of the column.
    """

    def run() -> None:
        with np.errstate(all="ignore"):
            for i in range(count):
                term = scalars[FIRST + i].astype(x.dtype) * basis[i]
                where = active & (i < scalars[MADE].real)
                np.copyto(x, x + term, where=where)

    return run
