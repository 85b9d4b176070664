"""Block masks of intervals, scores and lists: what `sparsegpu.masks` makes of its arguments."""

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
_PIECE = 1 << 18  # words or scores that are worked on at a time
#: The words whose lowest n bits are set.
_BELOW = np.array([(1 << n) - 1 for n in range(_WORD + 1)], dtype=np.uint32)


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
    words = ceil_div(bk, _WORD)
    bits = np.empty((partial.size, bm, words), dtype=np.uint32)
    word = np.arange(words, dtype=np.int64) * _WORD
    width = np.minimum(bk - word, _WORD)  # columns of each word
    step = max(1, _PIECE // (bm * words))
    for some in (slice(at, at + step) for at in range(0, partial.size, step)):
        block = partial[some]
        query = row[block][:, None] * bm + np.arange(bm, dtype=np.int64)
        # Key numbers within the block's words.
        low, high = (
            np.clip((at[query] - key[block][:, None])[..., None] - word, 0, width)
            for at in (start, stop)
        )
        np.subtract(_BELOW[high], _BELOW[low], out=bits[some])
    return pattern, kind, bits


def top_k(chosen: Any, scores: Any) -> None:
    """Write the columns of the largest scores of every row, ascending.

    Ties keep the lower column; NaN goes last.
    """
    columns, k = scores.shape[-1], chosen.shape[-1]
    rows, found = scores.reshape(-1, columns), chosen.reshape(-1, k)
    step = max(1, _PIECE // columns)
    for some in (slice(at, at + step) for at in range(0, len(rows), step)):
        found[some] = _columns_of_largest(rows[some], k)


def listed(indptr: Any, indices: Any, kind: Any, lists: Any) -> None:
    """Write the pattern of lists (*B, rows, most) and, unless None, the kinds of whole blocks."""
    rows, most = lists.shape[-2:]
    indptr[...] = np.arange(rows + 1) * most
    indices[...] = lists.reshape(indices.shape)
    if kind is not None:
        kind[...] = _FULL


def _columns_of_largest(scores: np.ndarray, k: int) -> np.ndarray:
    if scores.dtype in HALF_DTYPES:
        scores = scores.astype(np.float32)
    # Descending: ~ has no overflow for integers. NaN is last in NumPy's order.
    descending = ~scores if scores.dtype.kind in "biu" else -scores
    last = np.partition(descending, k - 1, axis=-1)[:, k - 1 : k]
    better, tie = descending < last, descending == last
    if scores.dtype.kind == "f":
        no_number, no_last = np.isnan(descending), np.isnan(last)
        better |= no_last & ~no_number
        tie |= no_last & no_number
    missing = k - np.count_nonzero(better, axis=-1, keepdims=True)
    better |= tie & (np.cumsum(tie, axis=-1) <= missing)
    return np.nonzero(better)[1].reshape(-1, k)
