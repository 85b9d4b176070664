"""Block-sparse arrays in iterative solvers: our own, and those of SciPy and cupyx."""

from __future__ import annotations

from ._amg import amg
from ._bicgstab import bicgstab
from ._block_jacobi import block_jacobi
from ._cg import cg
from ._gmres import gmres
from ._lobpcg import lobpcg
from ._minres import minres
from ._operator import aslinearoperator

__all__ = ["amg", "aslinearoperator", "bicgstab", "block_jacobi", "cg", "gmres", "lobpcg", "minres"]


def __dir__() -> list[str]:
    return __all__
