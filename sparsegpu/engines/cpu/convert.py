"""Dense to blocks and back, and blocks among themselves.

What is one indexing expression in NumPy and bound by memory is the reference's function. Loops are
imported where many elements are moved: making a `bsr_array` needs no numba.
"""

from __future__ import annotations

import numpy as np

from ...pattern import Pattern
from ..reference import convert as _reference
from ..reference.convert import block_mask as block_mask
from ..reference.convert import column_order as column_order
from ..reference.convert import gather_blocks as gather_blocks
from ..reference.convert import sum_blocks as sum_blocks
from ..reference.convert import transpose_pattern as transpose_pattern

#: Elements up to which NumPy moves blocks sooner than numba is called.
_FEW = 1 << 14


def transpose_blocks(out_blocks: np.ndarray, blocks: np.ndarray, order: np.ndarray) -> None:
    """Write ``out[t] = blocks[order[t]].T``."""
    if out_blocks.size <= _FEW:
        _reference.transpose_blocks(out_blocks, blocks, order)
        return
    from ._moves import transpose

    transpose(out_blocks, blocks, order)


def scatter_blocks(out_dense: np.ndarray, pattern: Pattern, data: np.ndarray) -> None:
    """Write the whole dense matrix: zeros between the blocks, duplicates summed (bool: or)."""
    if out_dense.size <= _FEW or not pattern.has_canonical_format:
        _reference.scatter_blocks(out_dense, pattern, data)
        return
    from ._moves import scatter

    scatter(out_dense, pattern, data)
