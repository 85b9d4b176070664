"""Block masks of intervals and of scores: what `sparsegpu.masks` makes of its arguments."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ..._arrays import HALF_DTYPES, index_dtype
from ..._math import ceil_div
from ..._segments import expand_counts
from ...pattern import Pattern
from .._intervals import Intervals

_FULL, _PARTIAL = 1, 2
_WORD = 32


def interval_mask(
    shape: tuple[int, int], blocksize: tuple[int, int], intervals: Intervals, xp: ModuleType
) -> tuple[Pattern, Any, Any]:
    """Return pattern, kind and bits of a mask (L, S), as `BlockMask` has them.

    The keys of a block row are one interval, too. Its first and last query say where it begins and
    ends, and which blocks are full.
    """
    del xp  # NumPy
    bm, bk = blocksize
    start, stop = intervals.of(np.arange(shape[0], dtype=np.int64), shape[1])
    first = start[::bm] // bk
    count = np.maximum(ceil_div(stop[bm - 1 :: bm], bk) - first, 0)
    row, number = expand_counts(count)
    column = first[row] + number
    indptr = np.zeros(count.size + 1, dtype=np.int64)
    indptr[1:] = np.cumsum(count)
    dtype = index_dtype(max(column.size, count.size, shape[1] // bk))
    where = indptr.astype(dtype), column.astype(dtype)
    pattern = Pattern(*where, shape, blocksize, check=False, copy=False)
    key = column * bk
    whole = (start[bm - 1 :: bm][row] <= key) & (stop[::bm][row] >= key + bk)
    kind = _PARTIAL - whole.view(np.uint8)  # _FULL is one less
    partial = np.flatnonzero(~whole)
    query = row[partial][:, None] * bm + np.arange(bm, dtype=np.int64)
    # Key numbers within the block, then within each word.
    low, high = (np.clip(at[query] - key[partial][:, None], 0, bk) for at in (start, stop))
    word = np.arange(ceil_div(bk, _WORD), dtype=np.int64) * _WORD
    low, high = (np.clip(at[..., None] - word, 0, _WORD) for at in (low, high))
    bits = (np.left_shift(1, high) - np.left_shift(1, low)).astype(np.uint32)
    return pattern, kind, bits


def top_k(chosen: Any, scores: Any) -> None:
    """Write the columns of the largest scores of every row, ascending.

    Ties keep the lower column; NaN goes last.
    """
    if scores.dtype in HALF_DTYPES:
        scores = scores.astype(np.float32)
    # Descending: ~ has no overflow for integers. A stable sort keeps ties in order.
    descending = ~scores if scores.dtype.kind in "biu" else -scores
    best = np.argsort(descending, axis=-1, kind="stable")[..., : chosen.shape[-1]]
    chosen[...] = np.sort(best, axis=-1)
