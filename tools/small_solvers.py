"""Small cases of the solvers, whose iterations are passes of kernels over a few vectors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import sparsegpu as sg

from .operands import Prepare


def solver_cases() -> Iterator[tuple[str, Prepare]]:
    """Yield the cases: with and without a preconditioner, for one right-hand side and several."""
    for name in ("cg", "minres", "bicgstab", "gmres"):
        for columns in (1, 3):
            yield f"{name} {columns}", partial(_solve, name, columns)


def _solve(name, columns, make):
    size, blocks = 3, 40
    n = size * blocks
    place = np.arange(n)
    dense = np.where(abs(place[:, None] // size - place // size) < 2, 0.1, 0.0) + 2 * np.eye(n)
    A = sg.bsr_array(make.xp.asarray(dense), blocksize=(size, size))
    b = make.dense((n, columns), "float64")
    M = sg.linalg.block_jacobi(A) if columns > 1 else None
    return lambda: getattr(sg.linalg, name)(A, b, rtol=1e-8, M=M, check_every=4)[0]
