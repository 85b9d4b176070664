"""Softmax over the stored elements of each row, and its gradient."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..._epilogue import store
from ...pattern import Pattern


@np.errstate(all="ignore")  # -inf - -inf: a row of -inf gives NaN
def bsr_softmax(out_data: np.ndarray, pattern: Pattern, data: np.ndarray) -> None:
    """Write ``exp(x - max(x)) / sum(exp(x - max(x)))`` along each row of stored elements.

    Computed in float32 (float64 for float64) and rounded once. ``pattern`` is canonical.
    """
    for out, x in _block_rows(out_data, pattern, data):
        e = np.exp(x - x.max(axis=(0, 2), keepdims=True))
        store(e / e.sum(axis=(0, 2), keepdims=True), out)


@np.errstate(all="ignore")  # inf * 0 and inf - inf are NaN
def bsr_softmax_backward(
    out_data: np.ndarray, pattern: Pattern, grad_data: np.ndarray, data: np.ndarray
) -> None:
    """Write ``y * (grad - sum(grad * y))`` along each row, y = ``data`` being the softmax.

    Computed in float32 (float64 for float64) and rounded once. ``pattern`` is canonical.
    """
    for out, grad, y in _block_rows(out_data, pattern, grad_data, data):
        store(y * (grad - (grad * y).sum(axis=(0, 2), keepdims=True)), out)


def _block_rows(
    out_data: np.ndarray, pattern: Pattern, *operands: np.ndarray
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the blocks (blocks of the row, bm, bk) of each block row that has some.

    Those of ``out_data`` as a view, those of ``operands`` in the precision that is computed in.
    """
    compute = np.float64 if operands[0].dtype == np.float64 else np.float32
    batch = out_data.shape[:-3]
    indptr = np.broadcast_to(pattern._indptr, batch + pattern._indptr.shape[-1:])
    operands = tuple(np.broadcast_to(x, batch + x.shape[-3:]) for x in operands)
    for b in np.ndindex(batch):
        for i in range(pattern.block_shape[0]):
            stored = slice(indptr[b][i], indptr[b][i + 1])
            if stored.start != stored.stop:
                yield (out_data[b][stored], *(x[b][stored].astype(compute) for x in operands))
