"""Softmax over the stored elements of each row."""

from __future__ import annotations

import numpy as np

from ..._epilogue import store
from ...pattern import Pattern


@np.errstate(invalid="ignore")  # -inf - -inf: a row of -inf gives NaN
def bsr_softmax(out_data: np.ndarray, pattern: Pattern, data: np.ndarray) -> None:
    """Write ``exp(x - max(x)) / sum(exp(x - max(x)))`` along each row of stored elements.

    Computed in float32 (float64 for float64) and rounded once. ``pattern`` is canonical.
    """
    compute = np.float64 if data.dtype == np.float64 else np.float32
    batch = out_data.shape[:-3]
    indptr = np.broadcast_to(pattern._indptr, batch + pattern._indptr.shape[-1:])
    data = np.broadcast_to(data, batch + data.shape[-3:])
    for b in np.ndindex(batch):
        for i in range(pattern.block_shape[0]):
            stored = slice(indptr[b][i], indptr[b][i + 1])
            if stored.start == stored.stop:
                continue
            x = data[b][stored].astype(compute)  # (blocks of the row, bm, bk)
            e = np.exp(x - x.max(axis=(0, 2), keepdims=True))
            store(e / e.sum(axis=(0, 2), keepdims=True), out_data[b][stored])
