"""Arithmetic of `bsr_array`."""

from __future__ import annotations

from typing import Any

from ..ops.addmm import bsr_matmul, dense_bsr_matmul


class Operators:
    """Operators and reductions of `bsr_array`."""

    __slots__ = ()

    def __matmul__(self: Any, other: Any) -> Any:
        if hasattr(other, "pattern") and hasattr(other, "data"):
            from ..ops.spgemm import bsr_spgemm

            return bsr_spgemm(self, other)
        return bsr_matmul(self, other)

    def __rmatmul__(self: Any, other: Any) -> Any:
        return dense_bsr_matmul(other, self)
