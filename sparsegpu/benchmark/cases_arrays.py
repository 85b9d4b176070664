"""The cases of arrays: conversions, assembly, and what else is done with them besides products."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .case import Case
from .peer import CUPYX

_POINTS = 24**3
_BESIDE = ("A.T", "A + B", "A[rows]", "tril", "A.sum(axis=1)", "from_blocks", "kron")
_ALONE = ("A.tocsr()", "from CSR")
_OF_DENSE = ("A.toarray()", "from dense", "prune_blocks")


def arrays() -> Iterable[Case]:
    """Sparse arrays themselves, whole calls: sums, slices, assembly, conversions, pruning."""
    size = (_POINTS * 3, _POINTS * 3, 1)
    small = Case("arrays", (3, 3), 27 / _POINTS, size, "float64", measure="whole call")
    small = replace(small, pattern="stencil")
    for operation in _BESIDE:
        yield replace(small, operation=operation, peers=(CUPYX,))
    for operation in _ALONE:
        yield replace(small, operation=operation)
    large = Case("arrays", (64, 64), 0.1, (8192, 8192, 1), measure="whole call")
    for operation in _OF_DENSE:
        yield replace(large, operation=operation)


def jacobi() -> Case:
    """Return the case of a preconditioner that needs no hierarchy."""
    size = (_POINTS * 3, _POINTS * 3, 1)
    case = Case("solvers", (3, 3), 27 / _POINTS, size, "float64", pattern="stencil")
    return replace(case, operation="block_jacobi", measure="whole call")
