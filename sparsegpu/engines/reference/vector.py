"""Linear combinations of vectors and dot products: all that a solver does between two products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._solver_steps import Step, after_pass

#: A target with its terms (row of the coefficient or None, vector); a dot product (row, u, v).
Update = tuple[Any, Sequence[tuple[int | None, Any]]]
Dot = tuple[int, Any, Any]


def prepare(
    scalars: np.ndarray,
    updates: Sequence[Update],
    dots: Sequence[Dot],
    active: np.ndarray | None = None,
    step: Step | None = None,
) -> Callable[[], None]:
    """Return a pass over vectors: linear combinations, then dot products of what they became.

    One column of a vector (n, r) is the vector of one system; ``scalars`` (k, r), float64 or
    complex128, are numbers of the systems, which a pass reads and writes. For each ``(target,
    terms)``, in order: ``target[i, j] = sum of scalars[row, j] * vector[i, j] over terms (row,
    vector)``. A row of None stands for ones, and ``target`` may be one of the vectors. Then for
    each ``(row, u, v)``: ``scalars[row, j] = sum over i of conj(u[i, j]) * v[i, j]``.

    Vectors change in the columns of ``active`` (bool (r,), None: all), as it is when the pass runs.
    At the end the step is made with ``scalars`` (`engines._solver_steps`). A pass with a step need
    not compute dot products of columns whose step is not made.
    """
    after = None if step is None else after_pass(step.name)

    def run() -> None:
        with np.errstate(all="ignore"):
            for target, terms in updates:
                value = np.zeros_like(target)
                for row, vector in terms:
                    value += vector if row is None else scalars[row].astype(value.dtype) * vector
                np.copyto(target, value, where=True if active is None else active)
            for row, u, v in dots:
                scalars[row] = (u.conj() * v).sum(axis=0, dtype=scalars.dtype)
            if after is not None and step is not None:
                after(scalars, *step.columns)

    return run


def gram(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return ``left^H @ right`` of tall matrices (n, p) and (n, q): all dot products."""
    return left.conj().T @ right


def combine(tall: np.ndarray, coefficients: np.ndarray, out: np.ndarray) -> None:
    """Write ``tall @ coefficients`` to out, of matrices (n, p) and (p, q)."""
    np.matmul(tall, coefficients, out=out)
