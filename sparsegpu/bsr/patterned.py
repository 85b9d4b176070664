"""Attributes that block-sparse arrays take from their pattern."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .._checks import bad_value
from ..pattern import Pattern


class Patterned:
    """Values over a shared, immutable `Pattern`."""

    __slots__ = ()

    _pattern: Pattern

    @property
    def pattern(self) -> Pattern:
        """The block pattern, shared by all arrays that have it."""
        return self._pattern

    @property
    def indices(self) -> Any:
        """Block column of every stored block, shape (*batch, nnzb)."""
        return self._pattern.indices

    @property
    def indptr(self) -> Any:
        """Where each block row starts in `indices`, shape (*batch, M // bm + 1)."""
        return self._pattern.indptr

    @property
    def blocksize(self) -> tuple[int, int]:
        """Height and width of a block."""
        return self._pattern.blocksize

    @property
    def shape(self) -> tuple[int, ...]:
        """``(*batch, M, K)``."""
        return (*self._pattern.batch_shape, *self._pattern.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions, 2 without a batch."""
        return len(self._pattern.batch_shape) + 2

    @property
    def nnzb(self) -> int:
        """Number of stored blocks (of one matrix of a batch)."""
        return self._pattern.nnzb

    @property
    def density(self) -> float:
        """Elements of stored blocks over all elements; 0.0 where there are none."""
        (m, k), (bm, bk) = self._pattern.shape, self._pattern.blocksize
        return self.nnzb * bm * bk / (m * k) if m and k else 0.0

    @property
    def _xp(self) -> ModuleType:
        return self._pattern.xp

    def _refuse_batch(self, function: str) -> None:
        if self._pattern.batch_shape:
            raise bad_value(function, "self", "one matrix (2-D)", f"a batch, shape {self.shape}")

    def _stored(self) -> str:
        """Describe the stored blocks, for ``repr``."""
        (bm, bk), plural = self.blocksize, "s" if self.nnzb != 1 else ""
        return f"{self.nnzb} block{plural} of {bm}x{bk} stored (density {self.density:.3g})"
