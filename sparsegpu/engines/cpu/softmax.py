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
    indptr = np.broadcast_to(pattern._indptr, batch + pattern._indptr.shape[-1:])
    data = np.broadcast_to(data, batch + data.shape[-3:])

    def rows(item: tuple[tuple[int, ...], int, int]) -> None:
        b, first, last = item
        ends = indptr[b][first : last + 1]
        stored = slice(ends[0], ends[-1])
        x = widen(data[b][stored])
        if np.may_share_memory(x, data):
            x = x.copy()
        ends = frozen(ends - ends[0])
        of_row = np.empty((len(ends) - 1) * x.shape[1], x.dtype)
        subtract_maximum(x, ends, of_row, -np.inf)
        np.exp(x, out=x)
        divide_by_sum(x, ends, of_row)
        store(x, out_data[b][stored])

    items = []
    for b in np.ndindex(batch):
        elements = out_data[b].size
        count = max(elements // _ELEMENTS, pieces(elements * _COST))
        items += [(b, *span) for span in spans(indptr[b][1:], pattern.block_shape[0], count)]
    for_each(rows, items, out_data.size * _COST)


@jit()
def subtract_maximum(x, ends, top, instead):
    """Subtract from each row of blocks (n, bm, bk) its largest element, which is put in ``top``.

    Block row i has the blocks ``ends[i]..ends[i + 1]``. ``instead`` is used instead of -inf.
    """
    _, bm, bk = x.shape
    for i in range(len(ends) - 1):
        for r in range(bm):
            most = x.dtype.type(-np.inf)
            for p in range(ends[i], ends[i + 1]):
                for k in range(bk):
                    most = max(most, x[p, r, k])
            if most == -np.inf:
                most = x.dtype.type(instead)
            top[i * bm + r] = most
            for p in range(ends[i], ends[i + 1]):
                for k in range(bk):
                    x[p, r, k] -= most


@jit()
def divide_by_sum(x, ends, total):
    """Divide each row of blocks by its sum, which is put in ``total``; a sum of 0 divides nothing.

    Summed in float64, for the accuracy of long rows.
    """
    _, bm, bk = x.shape
    for i in range(len(ends) - 1):
        for r in range(bm):
            s = 0.0
            for p in range(ends[i], ends[i + 1]):
                for k in range(bk):
                    s += x[p, r, k]
            total[i * bm + r] = s
            if s != 0:
                for p in range(ends[i], ends[i + 1]):
                    for k in range(bk):
                        x[p, r, k] /= s
