"""A product of 2:4 @ dense as the hosts of the Hopper kernels see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class SparseProduct:
    """Everything that a kernel's host needs to know to serve a product, or to leave it to another.

    Attributes
    ----------
    out, packed, meta, dense : array
        As in `semi_structured.semi_structured_addmm`; packed and meta are contiguous.
    batch : tuple of int
        Of the views.
    dtype : dtype
        That the operands stand for.
    terms : int
        Packed values of a row, or 0 where nothing is to be multiplied.
    defines, epilogue
        What `epilogue_args` makes of the epilogue.
    """

    out: Any
    packed: Any
    meta: Any
    dense: Any
    batch: tuple[int, ...]
    dtype: np.dtype
    terms: int
    defines: dict[str, str]
    epilogue: np.void
