"""The kernels of the solvers' passes: how a pass is told to them, and the passes that are built."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ._kernel_source import Defines, KernelSource
from .runtime.types import ctype

#: Threads of a block, columns that it takes at most, and vectors of a pass at most.
THREADS, COLUMNS, VECTORS = 256, 32, 8
#: Consecutive rows of single columns that a thread loads at once.
_SINGLE = {"float32": 4, "float64": 2, "complex64": 2, "complex128": 1}


def defines_of(
    dtype: np.dtype,
    terms: Iterable[tuple[int, int, int, bool]],
    dots: Iterable[tuple[int, int, int]],
    step: str | None,
    columns: int,
    rows: int,
) -> dict[str, Any]:
    """Return the ``-D`` names of a pass; see ``cuda_src/solver_pass.cu`` for the first two."""
    terms, dots = list(terms), list(dots)
    return {
        "T": ctype(dtype),
        "TERMS": _rows(terms),
        "TERM_COUNT": len(terms),
        "DOTS": _rows(dots),
        "DOT_COUNT": len(dots),
        "STEP": _step(step),
        "COLUMNS": columns,
        "ROWS": rows,
    }


def basis_defines(
    dtype: np.dtype, step: str | None, adds: bool, columns: int, rows: int
) -> dict[str, Any]:
    """Return the ``-D`` names of a pass over a basis; see ``cuda_src/solver_basis.cu``."""
    return {
        "T": ctype(dtype),
        "STEP": _step(step),
        "ADDS": str(adds).lower(),
        "COLUMNS": columns,
        "ROWS": rows,
    }


def _step(name: str | None) -> str:
    return "NoStep" if name is None else name.replace(".", "::")


def _rows(tuples: list) -> str:
    return ",".join("{" + ",".join(str(int(x)) for x in one) + "}" for one in tuples)


def _variants() -> tuple[Defines, ...]:
    """Return the passes of conjugate gradients for each dtype, and the largest of others."""
    from .._solver_steps import bicgstab, cg, gmres, minres

    x, p, r, t, w, s = range(6)
    found = []
    for name, rows in _SINGLE.items():
        dtype = np.dtype(name)
        minus = [(x, x, -1, False), (x, p, cg.MINUS_ALPHA, True)]
        both = [(x, x, -1, False), (x, p, cg.ALPHA, True)]
        both += [(p, r, -1, False), (p, p, cg.BETA, True)]
        found += [
            defines_of(dtype, [], [(cg.CURVATURE, x, p)], "cg.length", 1, rows),
            defines_of(dtype, minus, [(cg.SQUARE, x, x)], "cg.direction", 1, rows),
            defines_of(dtype, both, [], None, 1, rows),
            defines_of(dtype, both, [], None, 4, 1),
        ]
    for name, columns in (("complex128", 1), ("float32", 4)):
        dtype = np.dtype(name)
        minus = [(x, p, -1, False), (x, r, gmres.MINUS, True)]
        found.append(defines_of(dtype, minus, [(gmres.SQUARE, x, x)], "gmres.cycle", columns, 1))
        found.append(defines_of(dtype, [], [(gmres.SQUARE, x, x)], "gmres.start", columns, 1))
    b, m = bicgstab, minres
    steps = [(x, x, -1, False), (x, p, b.ALPHA, False), (x, r, b.OMEGA, True)]
    steps += [(t, t, -1, False), (t, w, b.MINUS_OMEGA, True)]
    dots = [(b.SQUARE, t, t), (b.RHO, s, t)]
    for name, columns in (("complex64", 1), ("float64", 32)):
        found.append(defines_of(np.dtype(name), steps, dots, "bicgstab.direction", columns, 1))
    moves = [(x, p, -1, True), (p, r, -1, True), (r, t, m.OVER_GAMMA, False)]
    moves += [(r, x, m.C1, False), (r, p, m.C2, True), (w, w, -1, False), (w, r, m.PHI, True)]
    for name, columns, rows in (("float32", 1, 4), ("float64", 8, 1)):
        dtype = np.dtype(name)
        found.append(defines_of(dtype, moves, [(m.LENGTH, w, w)], "minres.test", columns, rows))
        square = [(m.SQUARE, r, x)]
        found.append(defines_of(dtype, [], square, "minres.rotate", columns, rows))
    return tuple(found)


def _basis_variants() -> tuple[Defines, ...]:
    """Return passes over one column for each dtype, as it is loaded best, and over more."""
    kinds = [(np.dtype(name), 1, rows) for name, rows in _SINGLE.items()]
    kinds += [(np.dtype("float64"), 1, 1), (np.dtype("complex128"), COLUMNS, 1)]
    return tuple(
        basis_defines(dtype, step, adds, columns, rows)
        for dtype, columns, rows in kinds
        for step, adds in (("gmres.rotate", False), (None, True))
    )


SOLVERS = (
    KernelSource(
        "solver_pass",
        (),
        ("float32", "float64", "complex64", "complex128"),
        variants=_variants,
    ),
    KernelSource(
        "solver_basis",
        (),
        ("float32", "float64", "complex64", "complex128"),
        variants=_basis_variants,
    ),
)
