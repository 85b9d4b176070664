"""Dense to blocks and back, and blocks among themselves.

Most are one NumPy indexing expression in the reference, bound by memory, and taken from there.
"""

from __future__ import annotations

import numpy as np

from ..reference import convert as reference
from ..reference.convert import gather_blocks as gather_blocks
from ..reference.convert import scatter_blocks as scatter_blocks
from ..reference.convert import sum_blocks as sum_blocks
from ..reference.convert import transpose_blocks as transpose_blocks
from ._jit import frozen, jit
from ._threads import for_each, pieces


def block_mask(dense: np.ndarray, blocksize: tuple[int, int]) -> np.ndarray:
    """Return which blocks hold a nonzero, ``(*batch, M/bm, K/bk)``.

    NaN is not zero, -0.0 is.
    """
    if dense.dtype.kind == "c":  # two signs
        return reference.block_mask(dense, blocksize)
    (*batch, m, k), (bm, bk) = dense.shape, blocksize
    out = np.zeros((*batch, m // bm, k // bk), bool)
    values = dense.view(f"u{dense.itemsize}")
    every = np.iinfo(values.dtype).max
    mask = values.dtype.type(every if dense.dtype.kind in "iub" else every >> 1)
    step = max(-(-(m // bm) // pieces(dense.size)), 1)

    def rows(item: tuple[tuple[int, ...], int]) -> None:
        b, first = item
        flags = out[b][first : first + step]
        some = values[b][first * bm : (first + len(flags)) * bm]
        mark_nonzero(flags, frozen(np.ascontiguousarray(some)), mask, bm, bk)

    items = [(b, first) for b in np.ndindex(*batch) for first in range(0, m // bm, step)]
    for_each(rows, items, dense.size)
    return out


@jit()
def mark_nonzero(flags, values, mask, bm, bk):
    """Flag the blocks in which a value has one of the bits of ``mask``."""
    for i in range(flags.shape[0]):
        for j in range(flags.shape[1]):
            found = values.dtype.type(0)
            for r in range(i * bm, (i + 1) * bm):
                for c in range(j * bk, (j + 1) * bk):
                    found |= values[r, c] & mask
                if found != 0:
                    break
            flags[i, j] = found != 0
