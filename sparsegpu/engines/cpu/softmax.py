"""Softmax over the stored elements of each row: compiled row sums around NumPy's ``exp``.

Its gradient is one compiled loop.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..._epilogue import store
from ...pattern import Pattern
from ._jit import frozen, jit
from ._operands import widen
from ._threads import for_each, pieces, spans

#: Elements widened at a time, and what an element costs in multiply-adds (`for_each`).
_ELEMENTS, _COST, _GRADIENT_COST = 1 << 18, 20, 4


def bsr_softmax(out_data: np.ndarray, pattern: Pattern, data: np.ndarray) -> None:
    """Write ``exp(x - max(x)) / sum(exp(x - max(x)))`` along each row of stored elements.

    Computed in float32 (float64 for float64) and rounded once. ``pattern`` is canonical.
    """

    def rows(ends: np.ndarray, x: np.ndarray) -> np.ndarray:
        of_row = np.empty((len(ends) - 1) * x.shape[1], x.dtype)
        subtract_maximum(x, ends, of_row, -np.inf)
        np.exp(x, out=x)
        divide_by_sum(x, ends, of_row)
        return x

    _by_rows(rows, out_data, pattern, (data,), _COST)


def bsr_softmax_backward(
    out_data: np.ndarray, pattern: Pattern, grad_data: np.ndarray, data: np.ndarray
) -> None:
    """Write ``y * (grad - sum(grad * y))`` along each row, y = ``data`` being the softmax.

    Computed in float32 (float64 for float64) and rounded once. ``pattern`` is canonical.
    """

    def rows(ends: np.ndarray, grad: np.ndarray, y: np.ndarray) -> np.ndarray:
        multiply_by_rest(grad, y, ends)
        return grad

    _by_rows(rows, out_data, pattern, (grad_data, data), _GRADIENT_COST)


def _by_rows(
    compute: Callable[..., np.ndarray],
    out_data: np.ndarray,
    pattern: Pattern,
    operands: tuple[np.ndarray, ...],
    cost: int,
) -> None:
    """Store ``compute(ends, *operands)`` of some block rows at a time, in several threads.

    It gets copies of the blocks, widened, of which block row i has ``ends[i]..ends[i + 1]``.
    """
    batch = out_data.shape[:-3]
    indptr = np.broadcast_to(pattern._indptr, batch + pattern._indptr.shape[-1:])
    operands = tuple(np.broadcast_to(x, batch + x.shape[-3:]) for x in operands)

    def rows(item: tuple[tuple[int, ...], int, int]) -> None:
        b, first, last = item
        ends = indptr[b][first : last + 1]
        stored = slice(ends[0], ends[-1])
        blocks = (_copied(x[b][stored]) for x in operands)
        store(compute(frozen(ends - ends[0]), *blocks), out_data[b][stored])

    items = []
    for b in np.ndindex(batch):
        elements = out_data[b].size
        count = max(elements // _ELEMENTS, pieces(elements * cost))
        items += [(b, *span) for span in spans(indptr[b][1:], pattern.block_shape[0], count)]
    for_each(rows, items, out_data.size * cost)


def _copied(blocks: np.ndarray) -> np.ndarray:
    wide = widen(blocks)
    return wide.copy() if np.may_share_memory(wide, blocks) else wide


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


@jit()
def multiply_by_rest(grad, y, ends):
    """Replace ``grad`` by ``y * (grad - s)``, s being the sum of ``grad * y`` along each row.

    Summed in float64, for the accuracy of long rows. Block row i has the blocks
    ``ends[i]..ends[i + 1]``.
    """
    _, bm, bk = y.shape
    for i in range(len(ends) - 1):
        for r in range(bm):
            s = 0.0
            for p in range(ends[i], ends[i + 1]):
                for k in range(bk):
                    s += np.float64(grad[p, r, k]) * np.float64(y[p, r, k])
            for p in range(ends[i], ends[i + 1]):
                for k in range(bk):
                    grad[p, r, k] = y[p, r, k] * (grad[p, r, k] - s)
