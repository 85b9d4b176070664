"""Block masks of intervals, scores and lists on the device: a launch for each mask."""

from __future__ import annotations

from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from ..._arrays import check_may_wait, index_dtype
from ..._math import ceil_div
from ...pattern import Pattern
from .._intervals import Intervals
from ._grid import THREADS, grid
from .runtime.launch import NULL, Launch, address, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype

_WORD = 32  # columns of a word of bits
_TOP_BIT = np.uint64(1 << 63)
_LISTED = (np.dtype(np.int32), np.dtype(np.int64))


def interval_mask(
    shape: tuple[int, int], blocksize: tuple[int, int], intervals: Intervals, xp: ModuleType
) -> tuple[Pattern, Any, Any]:
    """Return pattern, kind and bits of a mask (L, S), as `BlockMask` has them.

    The host finds where blocks are stored and which are full, from two queries of each block row.
    So it knows all sizes, and the device is not waited for. What it found goes there in one copy.
    """
    # The copy to the device is from memory of CuPy's that a CUDA graph would read again.
    check_may_wait(xp, "making a mask, which copies from the host or")
    (length, keys), (bm, bk) = shape, blocksize
    block_rows, words = length // bm, ceil_div(bk, _WORD)
    query = np.arange(0, length, bm, dtype=np.int64)
    (starts, stops), (last_starts, last_stops) = (
        intervals.of(at, keys) for at in (query, query + (bm - 1))
    )
    first = starts // bk
    end = np.maximum(ceil_div(last_stops, bk), first)
    full = np.minimum(ceil_div(last_starts, bk), end)
    full_end = np.minimum(np.maximum(stops // bk, full), end)
    rows = np.zeros((5, block_rows + 1), np.int64)
    np.cumsum(end - first, out=rows[0, 1:])
    np.cumsum(end - first - (full_end - full), out=rows[1, 1:])
    rows[2:, :-1] = first, full, full_end
    nnzb, partial = rows[:2, -1].tolist()
    ends = np.zeros(0, np.int64) if intervals.ends is None else intervals.ends
    dtype = index_dtype(max(nnzb, block_rows, keys // bk))
    indptr, indices = xp.empty(block_rows + 1, dtype), xp.empty(nnzb, dtype)
    kind, bits = xp.empty(nnzb, np.uint8), xp.empty((partial, bm, words), np.uint32)
    problem = kernel_struct("interval_mask", "IntervalProblem")(
        rows=block_rows,
        keys=keys,
        lower=intervals.lower,
        upper=intervals.upper,
        prefix=intervals.prefix,
        documents=ends.size,
        bm=bm,
        bk=bk,
        words=words,
    )
    launch = Launch(
        kernel("interval_mask", INDEX=ctype(dtype)),
        grid(block_rows + 1),
        (THREADS,),
        (indptr, indices, kind, bits, xp.asarray(np.concatenate([rows.ravel(), ends])), problem),
    )
    submit(launch, setup=True)
    pattern = Pattern(indptr, indices, shape, blocksize, check=False, copy=False)
    pattern.note("order", (True, True))
    pattern.note("longest row", int((end - first).max(initial=0)))
    return pattern, kind, bits


def top_k(chosen: Any, scores: Any) -> None:
    """Write the columns of the largest scores of every row, ascending.

    Ties keep the lower column; NaN goes last. ``chosen`` is C-contiguous.
    """
    if scores.dtype == np.uint64:
        scores = (scores ^ _TOP_BIT).view(np.int64)  # the same order
    elif scores.dtype.kind in "biu":
        scores = scores.astype(np.int64)
    scores = scores if scores.flags.c_contiguous else scores.copy()
    columns, count = scores.shape[-1], chosen.shape[-1]
    rows = prod(scores.shape[:-1])
    launch = Launch(
        kernel("top_k", T=ctype(scores.dtype), INDEX=ctype(chosen.dtype)),
        grid(rows),
        (THREADS,),
        (chosen, scores, np.int64(rows), np.int64(columns), np.int64(count)),
    )
    submit(launch, setup=True)


def listed(indptr: Any, indices: Any, kind: Any, lists: Any) -> None:
    """Write the pattern of lists (*B, rows, most) and, unless None, the kinds of whole blocks.

    What is written is C-contiguous.
    """
    if lists.dtype not in _LISTED:
        lists = lists.astype(np.int64)
    lists = lists if lists.flags.c_contiguous else lists.copy()
    rows, most = lists.shape[-2:]
    launch = Launch(
        kernel("mask_of_lists", T=ctype(lists.dtype), INDEX=ctype(indices.dtype)),
        grid(ceil_div(max(indptr.size, indices.size), THREADS)),
        (THREADS,),
        (
            indptr,
            indices,
            NULL if kind is None else kind,
            address(lists),
            np.int64(indices.size),
            np.int64(indptr.size),
            np.int64(rows),
            np.int64(most),
        ),
    )
    submit(launch, setup=True)
