"""Block rows by similarity: an order in which the groups of `_schedule.py` have short unions.

A group of block rows shares the tiles of the dense operand at columns that several of its rows
have. In a matrix whose rows are in random order these are few: so similar rows are placed next to
each other first. The order is made on the device once, and kept with the pattern; results
come out in the caller's order.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..._math import ceil_div
from ...pattern import Pattern
from ._arena import Arena
from ._grid import THREADS, grid
from ._schedule import OrderedRows, RowGroups, build_groups, rank_descending, row_groups
from .runtime.launch import NULL, Launch, kernel, pointer, submit
from .runtime.types import ctype

#: Rows of a window, which are compared with each other.
WINDOW = 256

# 32-bit words of a row's bits; a window with the last number fits 96 KB.
_WORDS = (16, 32, 64, 92)
_WARPS = THREADS // 32
_INT32 = np.dtype(np.int32)


def similar_row_groups(pattern: Pattern, rows: int, blocks_from: Any = None) -> RowGroups:
    """Do what `row_groups` does with similar block rows in a group; kept with the pattern.

    The groups' ``block_rows`` say which rows they are.
    """

    def build() -> RowGroups:
        if rows == 1 or pattern._indices.size == 0:
            return row_groups(pattern, rows, blocks_from)
        return build_groups(pattern, rows, blocks_from, ordered_rows(pattern, rows))

    return pattern.memo(
        ("similar_row_groups", pattern.device, rows, blocks_from is not None), build
    )


def ordered_rows(pattern: Pattern, rows: int) -> OrderedRows:
    """Return an order of a pattern's rows, similar ones in runs of ``rows``."""
    block_rows, block_columns = pattern.block_shape
    matrices = prod(pattern.batch_shape)
    window = WINDOW // rows * rows
    windows = ceil_div(block_rows, window)
    padded = ceil_div(block_rows, rows) * rows
    parts = Arena(
        pattern.xp, (matrices * padded, _INT32), (pattern._indptr.size, pattern._indptr.dtype)
    )
    order, indptr = map(pointer, parts.addresses)
    words = next((words for words in _WORDS if 32 * words >= block_columns), _WORDS[-1])
    launch = Launch(
        kernel("bsr_row_order", INDEX=ctype(pattern._indices.dtype), WINDOW=WINDOW, WORDS=words),
        grid(matrices * windows),
        (WINDOW,),
        (
            order,
            indptr,
            _by_signature(pattern) if windows > 1 else NULL,
            pattern._indptr,
            pattern._indices,
            np.int64(windows),
            np.int64(block_rows),
            np.int64(padded),
            np.int64(pattern.nnzb),
            np.int32(window),
            np.int32(rows),
        ),
        WINDOW * (words | 4) * 4,
    )
    submit(launch, setup=True)
    return OrderedRows(parts.array(0), parts.array(1))


def _by_signature(pattern: Pattern) -> Any:
    """Return all block rows, numbered over the batch, by matrix and then by signature."""
    block_rows = pattern.block_shape[0]
    total = prod(pattern.batch_shape) * block_rows
    signatures, order = map(Arena(pattern.xp, (total, _INT32), (total, _INT32)).array, range(2))
    launch = Launch(
        kernel("bsr_row_signature", INDEX=ctype(pattern._indices.dtype)),
        grid(ceil_div(total, _WARPS)),
        (THREADS,),
        (
            signatures,
            pattern._indptr,
            pattern._indices,
            np.int64(total),
            np.int64(block_rows),
            np.int64(pattern.nnzb),
        ),
    )
    submit(launch, setup=True)
    rank_descending(order, signatures, block_rows)
    return order
