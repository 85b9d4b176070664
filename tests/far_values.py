"""Operands whose values do not fit 32 bits on a GPU; elsewhere they are of a few blocks."""

from __future__ import annotations

from typing import Any

import sparsegpu as sg
from sparsegpu._arrays import dtype_of

#: Elements of a row and of a column: together more than 2**31.
FAR = 46_400


def along(engine, side: int) -> int:
    """Return how many blocks of a side a row or a column has."""
    return -(-FAR // side) if engine.on_gpu else 3


def smallest(cases: list) -> Any:
    """Return the case whose values take the least memory, of the largest blocks; dtypes first."""
    return min(cases, key=lambda case: (dtype_of(case[0]).itemsize, [-side for side in case[1]]))


def full(engine, counts: tuple[int, int], blocksize: tuple[int, int], dtype):
    """Return a matrix of zeros that stores all of so many rows and columns of blocks."""
    (rows, columns), (bm, bk), xp = counts, blocksize, engine.xp
    parts = (
        xp.zeros((rows * columns, bm, bk), dtype_of(dtype)),
        xp.tile(xp.arange(columns, dtype="int32"), rows),
        xp.arange(0, rows * columns + 1, columns, dtype="int32"),
    )
    made = sg.bsr_array(parts, shape=(rows * bm, columns * bk))
    assert not engine.on_gpu or made.size > 2**31
    return made


def of_rows(a) -> Any:
    """Return a view of the blocks of such a matrix, (rows, columns, bm, bk)."""
    return a.data.reshape(-1, a.pattern.block_shape[1], *a.blocksize)


def some_rows(a) -> set[int]:
    """Return block rows to look at; the last one ends where 32 bits do not reach."""
    last = a.pattern.block_shape[0] - 1
    return {0, last // 2, last}
