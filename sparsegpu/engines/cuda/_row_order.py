"""Block rows by likeness: an order in which the groups of `_schedule.py` walk short unions.

What a group of block rows shares are the tiles of the dense operand at columns that several of
them have. In a matrix whose rows come in an accidental order, few have: so similar rows are put
next to each other first. The order is made on the device once, and kept with the pattern; results
come out in the caller's order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...pattern import Pattern
from ._blocks import THREADS, ceil_div, grid, size_of
from ._schedule import RowGroups, falling_order, row_groups
from .runtime.launch import kernel
from .runtime.types import ctype

#: Rows that are compared with each other.
WINDOW = 256

_WORDS_AT_ONCE = 4
_MOST_WORDS = 92  # of a row's columns as bits: so many fit into 96 KB
_WARPS = THREADS // 32


class OrderedRows(NamedTuple):
    """A pattern's rows in another order.

    Attributes
    ----------
    block_rows : int32 array (batch, rows rounded up to groups)
        Which row of its matrix each one was; -1 behind the last.
    pattern : Pattern
    blocks_from : int64 array (batch * nnzb,)
        Where its blocks come from.
    """

    block_rows: Any
    pattern: Pattern
    blocks_from: Any


def similar_row_groups(pattern: Pattern, rows: int, blocks_from: Any = None) -> RowGroups:
    """Do what `row_groups` does with similar block rows in a group; kept with the pattern.

    The groups' ``block_rows`` say which rows they are.
    """

    def build() -> RowGroups:
        if rows == 1 or pattern.indices.size == 0:
            return row_groups(pattern, rows, blocks_from)
        ordered = ordered_rows(pattern, rows, blocks_from)
        groups = row_groups(ordered.pattern, rows, ordered.blocks_from)
        return groups._replace(block_rows=ordered.block_rows.ravel())

    return pattern.memo(
        ("similar_row_groups", pattern.device, rows, blocks_from is not None), build
    )


def ordered_rows(pattern: Pattern, rows: int, blocks_from: Any = None) -> OrderedRows:
    """Return a pattern with similar rows in runs of ``rows``; arguments as of `row_groups`."""
    xp, (block_rows, block_columns) = pattern.xp, pattern.block_shape
    index, matrices = ctype(pattern.indices.dtype), size_of(pattern.batch_shape)
    window = WINDOW // rows * rows
    windows = ceil_div(block_rows, window)
    padded = ceil_div(block_rows, rows) * rows
    order = xp.empty((matrices, padded), dtype=np.int32)
    indptr, indices = xp.empty_like(pattern.indptr), xp.empty_like(pattern.indices)
    origin = xp.empty(indices.size, dtype=np.int64)
    words = ceil_div(block_columns, 32 * _WORDS_AT_ONCE) * _WORDS_AT_ONCE
    words = min(words, _MOST_WORDS)
    none = np.uint64(0)
    kernel("bsr_row_order", INDEX=index, WINDOW=WINDOW)(
        grid(matrices * windows),
        (WINDOW,),
        (
            order,
            indptr,
            none if windows == 1 else _by_signature(pattern),
            pattern.indptr,
            pattern.indices,
            np.int64(windows),
            np.int64(block_rows),
            np.int64(padded),
            np.int64(pattern.nnzb),
            np.int32(window),
            np.int32(rows),
            np.int32(words),
        ),
        (WINDOW + 1) * words * 4,
    )
    kernel("bsr_row_gather", INDEX=index)(
        grid(ceil_div(matrices * block_rows, _WARPS)),
        (THREADS,),
        (
            indices,
            origin,
            indptr,
            pattern.indptr,
            pattern.indices,
            none if blocks_from is None else blocks_from,
            order,
            np.int64(matrices * block_rows),
            np.int64(block_rows),
            np.int64(padded),
            np.int64(pattern.nnzb),
        ),
    )
    moved = Pattern(indptr, indices, pattern.shape, pattern.blocksize, check=False, copy=False)
    return OrderedRows(order, moved, origin)


def _by_signature(pattern: Pattern) -> Any:
    """Return all block rows, numbered over the batch, by matrix and then by signature."""
    xp, block_rows = pattern.xp, pattern.block_shape[0]
    total = size_of(pattern.batch_shape) * block_rows
    signatures = xp.empty(total, dtype=np.int32)
    kernel("bsr_row_signature", INDEX=ctype(pattern.indices.dtype))(
        grid(ceil_div(total, _WARPS)),
        (THREADS,),
        (
            signatures,
            pattern.indptr,
            pattern.indices,
            np.int64(total),
            np.int64(block_rows),
            np.int64(pattern.nnzb),
        ),
    )
    order = xp.empty(total, dtype=np.int32)
    falling_order(order, signatures, block_rows)
    return order
