"""Softmax over the stored elements of each row: compiled row sums around NumPy's ``exp``."""

from __future__ import annotations

import numpy as np

from ..._epilogue import store
from ...pattern import Pattern
from ._jit import frozen, jit
from ._operands import widen
from ._threads import for_each, pieces, spans

#: Elements widened at a time, and what an element costs in multiply-adds (`for_each`).
_ELEMENTS, _COST = 1 << 18, 20


def bsr_softmax(out_data: np.ndarray, pattern: Pattern, data: np.ndarray) -> None:
    """Write ``exp(x - max(x)) / sum(exp(x - max(x)))`` along each row of stored elements.

    Computed in float32 (float64 for float64) and rounded once. ``pattern`` is canonical.
    """
    batch = out_data.shape[:-3]
    indptr = np.broadcast_to(pattern.indptr, batch + pattern.indptr.shape[-1:])
    data = np.broadcast_to(data, batch + data.shape[-3:])

    def rows(item: tuple[tuple[int, ...], int, int]) -> None:
        b, first, last = item
        ends = indptr[b][first : last + 1]
        stored = slice(ends[0], ends[-1])
        x = widen(data[b][stored])
        if np.may_share_memory(x, data):
            x = x.copy()
        ends = frozen(ends - ends[0])
        subtract_maximum(x, ends)
        np.exp(x, out=x)
        divide_by_sum(x, ends)
        store(x, out_data[b][stored])

    items = []
    for b in np.ndindex(batch):
        elements = out_data[b].size
        count = max(elements // _ELEMENTS, pieces(elements * _COST))
        items += [(b, *span) for span in spans(indptr[b][1:], pattern.block_shape[0], count)]
    for_each(rows, items, out_data.size * _COST)


@jit()
def subtract_maximum(x, ends):
    """Subtract its largest element from each row of blocks (n, bm, bk)."""
    _, bm, bk = x.shape
    for i in range(len(ends) - 1):
        for r in range(bm):
            top = x.dtype.type(-np.inf)
            for p in range(ends[i], ends[i + 1]):
                for k in range(bk):
                    top = max(top, x[p, r, k])
            for p in range(ends[i], ends[i + 1]):
                for k in range(bk):
                    x[p, r, k] -= top


@jit()
def divide_by_sum(x, ends):
    """Divide each row of blocks by its sum, a float64 so that long rows lose nothing."""
    _, bm, bk = x.shape
    for i in range(len(ends) - 1):
        for r in range(bm):
            total = 0.0
            for p in range(ends[i], ends[i + 1]):
                for k in range(bk):
                    total += x[p, r, k]
            for p in range(ends[i], ends[i + 1]):
                for k in range(bk):
                    x[p, r, k] /= total
