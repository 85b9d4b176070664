"""A bool mask as kernels read it: a number for each block, and bits of the partial ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from ._memo import Memo

#: Numbers of blocks without bits: nothing is attended, everything is. They are -1 - kind.
NOTHING, EVERYTHING = -1, -2


@dataclass(frozen=True, slots=True)
class BlockBits:
    """The blocks of a canonical pattern.

    Attributes
    ----------
    codes : array (*batch, nnzb)
        `NOTHING`, `EVERYTHING`, or the number of the block among those of ``bits``. C-contiguous,
        of the dtype of the pattern's indices.
    bits : uint32 array (partial, bm, ceil(bk / 32))
        Of each partial block, in any order. Column j is bit ``j % 32`` of word ``j // 32``.
    columns : int
        Of a block.
    memo : Memo
        What is derived from the codes, which never change.
    serial : int
        Another one for every mask: of two masks that were at the same addresses, one after the
        other, what is derived differs.
    """

    codes: Any
    bits: Any
    columns: int
    memo: Memo
    serial: int = field(default_factory=count().__next__)

    @property
    def dtype(self) -> np.dtype:
        """Of the mask's elements."""
        return np.dtype(np.bool_)
