"""Block rows by likeness: an order in which the groups of `_schedule.py` walk short unions.

What a group of block rows shares are the tiles of the dense operand at columns that several of
them have. In a matrix whose rows come in an accidental order, few have: so similar rows are put
next to each other first. The order is made on the device once, and kept with the pattern; results
come out in the caller's order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...pattern import Pattern
from ._blocks import THREADS, ceil_div, grid, size_of
from ._schedule import OrderedRows, RowGroups, arrays, build_groups, falling_order, row_groups
from .runtime.launch import kernel
from .runtime.types import ctype

#: Rows that are compared with each other.
WINDOW = 256

# Of a row's columns as bits; so many of the last fit into 96 KB.
_WORDS = (16, 32, 64, 92)
_WARPS = THREADS // 32
_INT32 = np.dtype(np.int32)


def similar_row_groups(pattern: Pattern, rows: int, blocks_from: Any = None) -> RowGroups:
    """Do what `row_groups` does with similar block rows in a group; kept with the pattern.

    The groups' ``block_rows`` say which rows they are.
    """

    def build() -> RowGroups:
        if rows == 1 or pattern.indices.size == 0:
            return row_groups(pattern, rows, blocks_from)
        return build_groups(pattern, rows, blocks_from, ordered_rows(pattern, rows))

    return pattern.memo(
        ("similar_row_groups", pattern.device, rows, blocks_from is not None), build
    )


def ordered_rows(pattern: Pattern, rows: int) -> OrderedRows:
    """Return an order of a pattern's rows, similar ones in runs of ``rows``."""
    block_rows, block_columns = pattern.block_shape
    matrices = size_of(pattern.batch_shape)
    window = WINDOW // rows * rows
    windows = ceil_div(block_rows, window)
    padded = ceil_div(block_rows, rows) * rows
    total = matrices * block_rows
    sorted_ = windows > 1
    signatures, by_signature, order, indptr = arrays(
        pattern.xp,
        (total * sorted_, _INT32),
        (total * sorted_, _INT32),
        (matrices * padded, _INT32),
        (pattern.indptr.size, pattern.indptr.dtype),
    )
    if sorted_:
        _write_signatures(signatures, pattern)
        falling_order(by_signature, signatures, block_rows)
    words = next((words for words in _WORDS if 32 * words >= block_columns), _WORDS[-1])
    kernel("bsr_row_order", INDEX=ctype(pattern.indices.dtype), WINDOW=WINDOW, WORDS=words)(
        grid(matrices * windows),
        (WINDOW,),
        (
            order,
            indptr,
            by_signature if sorted_ else np.uint64(0),
            pattern.indptr,
            pattern.indices,
            np.int64(windows),
            np.int64(block_rows),
            np.int64(padded),
            np.int64(pattern.nnzb),
            np.int32(window),
            np.int32(rows),
        ),
        WINDOW * (words | 4) * 4,
    )
    return OrderedRows(order, indptr)


def _write_signatures(signatures: Any, pattern: Pattern) -> None:
    """Write what similar block rows, numbered over the batch, have in common mostly."""
    kernel("bsr_row_signature", INDEX=ctype(pattern.indices.dtype))(
        grid(ceil_div(signatures.size, _WARPS)),
        (THREADS,),
        (
            signatures,
            pattern.indptr,
            pattern.indices,
            np.int64(signatures.size),
            np.int64(pattern.block_shape[0]),
            np.int64(pattern.nnzb),
        ),
    )
