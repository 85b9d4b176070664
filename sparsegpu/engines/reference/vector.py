"""Linear combinations of vectors and dot products: all that a solver does between two products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: A target with its terms (row of the coefficient or None, vector); a dot product (row, u, v).
Update = tuple[Any, Sequence[tuple[int | None, Any]]]
Dot = tuple[int, Any, Any]


def prepare(
    scalars: np.ndarray, updates: Sequence[Update], dots: Sequence[Dot]
) -> Callable[[np.ndarray | None], None]:
    """Return a pass over vectors: linear combinations, then dot products of what they became.

    One column of a vector (n, r) is the vector of one system; ``scalars`` (k, r), float64 or
    complex128, are numbers of the systems, which a pass reads and writes. For each ``(target,
    terms)``, in order: ``target[i, j] = sum of scalars[row, j] * vector[i, j] over terms (row,
    vector)``. A row of None stands for ones, and ``target`` may be one of the vectors. Then for
    each ``(row, u, v)``: ``scalars[row, j] = sum over i of conj(u[i, j]) * v[i, j]``.

    The pass is called with the columns (bool (r,), None: all) whose vectors it may change.
    """

    def run(active: np.ndarray | None) -> None:
        with np.errstate(all="ignore"):
            for target, terms in updates:
                value = np.zeros_like(target)
                for row, vector in terms:
                    value += vector if row is None else scalars[row].astype(value.dtype) * vector
                np.copyto(target, value, where=True if active is None else active)
            for row, u, v in dots:
                scalars[row] = (u.conj() * v).sum(axis=0, dtype=scalars.dtype)

    return run
