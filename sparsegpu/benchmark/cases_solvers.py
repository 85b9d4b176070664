"""The cases of solvers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .bars import Bar
from .case import Case
from .cases_arrays import jacobi
from .peer import CUPYX, SCIPY

_BEAM = 51_840  # unknowns of the beam that the demo bends where PyAMG is not installed
_GRID = 70**3 * 3


def solvers() -> Iterable[Case]:
    """Solvers: an elastic beam and a grid of 27 blocks a row, beside cupyx's and SciPy's."""
    plain = Case(
        "solvers",
        (2, 2),
        18 / _BEAM,
        (_BEAM, _BEAM, 1),
        "float64",
        pattern="elasticity",
        operation="cg",
        measure="solve",
        peers=(CUPYX, SCIPY),
        bars=(Bar("ms", 60.0), Bar("peer time", 0.25, CUPYX)),
    )
    yield plain
    fewer = (Bar("case iterations", 0.1, plain.name), Bar("case time", 1.0, plain.name))
    yield replace(plain, operation="cg with amg", peers=(), bars=fewer)
    for operation in ("gmres", "minres"):
        yield replace(plain, operation=operation, peers=(CUPYX,), bars=())
    beside = (Bar("peer time", 1.0, CUPYX),)
    yield replace(plain, operation="lobpcg", size=(_BEAM, _BEAM, 8), bars=beside)
    size = (_GRID, _GRID, 1)
    grid = replace(plain, block=(3, 3), density=27 * 3 / _GRID, size=size, pattern="grid")
    yield replace(grid, peers=(CUPYX,), bars=(Bar("bytes", 1.25),))
    yield replace(grid, size=(_GRID, _GRID, 4), peers=(), bars=())
    yield replace(grid, operation="bicgstab", peers=(CUPYX,), bars=())
    yield jacobi()
