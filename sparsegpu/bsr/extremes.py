"""Largest and smallest of blocks' elements, and of the blocks of a row."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from .._arrays import namespace
from ..pattern import Pattern

#: How short a last axis NumPy takes longer to reduce than to compare its elements one by one, by
#: strides: three take 35 times as long.
_SHORT = 32
_PIECE = 1 << 18  # bytes that are compared at a time: every pass after the first finds them in L2


def reduced(data: Any, name: str, axis: int | None = None) -> Any:
    """Reduce by the ufunc "maximum", "minimum", or "fmax" and "fmin", which pass over NaN."""
    if namespace(data) is np and axis == -1 and data.ndim > 1 and 0 < data.shape[-1] <= _SHORT:
        best = np.empty(data.shape[:-1], data.dtype)
        step = max(1, _PIECE // max(data[:1].nbytes, 1))
        for some in (slice(at, at + step) for at in range(0, len(data), step)):
            best[some] = reduce(getattr(np, name), np.moveaxis(data[some], -1, 0))
        return best
    method = "max" if name.endswith("max") or name == "maximum" else "min"
    if not name.startswith("f") or data.dtype.kind != "f":
        return getattr(data, method)(axis=axis)
    xp = namespace(data)
    nan, last = xp.isnan(data), -np.inf if method == "max" else np.inf
    best = getattr(xp.where(nan, data.dtype.type(last), data), method)(axis=axis)
    return xp.where(nan.all(axis=axis), data.dtype.type(np.nan), best)[()]  # no array of one


def row_extremes(pattern: Pattern, values: Any, operation: Any) -> Any:
    """Reduce ``values (nnzb, bm)`` of one matrix over the blocks of each block row."""
    xp = pattern.xp
    (rows, columns), bm = pattern.block_shape, pattern.blocksize[0]
    if values.size == 0:
        return xp.zeros((rows, bm), values.dtype)
    count = (pattern.indptr[1:] - pattern.indptr[:-1])[:, None]
    if xp is np:
        best, some = np.zeros((rows, bm), values.dtype), np.flatnonzero(count)
        best[some] = operation.reduceat(values, pattern.indptr[some])
    else:
        best = extremes_by_doubling(pattern, values, operation)
    return xp.where(count < columns, operation(best, xp.zeros((), values.dtype)), best)


def extremes_by_doubling(pattern: Pattern, values: Any, operation: Any) -> Any:
    """Reduce as `row_extremes`, without the zeros of what is not stored; empty rows are zero.

    With step s, a block holds the extreme of the last s blocks of its row.
    """
    xp, row, starts = pattern.xp, pattern.rows[:, None], pattern.indptr
    count = (starts[1:] - starts[:-1])[:, None]
    step, longest = 1, int(count.max())
    while step < longest:
        joined = operation(values[step:], values[:-step])
        joined = xp.where(row[step:] == row[:-step], joined, values[step:])
        values = xp.concatenate([values[:step], joined])
        step *= 2
    last = xp.maximum(starts[1:] - 1, 0)
    return xp.where(count > 0, values[last], xp.zeros((), values.dtype))
