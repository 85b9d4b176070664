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
from ._schedule import RowGroups, row_groups
from .runtime.launch import kernel
from .runtime.types import ctype

_WINDOW = 512  # rows that are compared with each other; a multiple of any group
_WORDS_AT_ONCE = 4
_MOST_WORDS = 44  # of a row's columns as bits: so many fit into 96 KB
_HASHES = 4


class _Ordered(NamedTuple):
    """A pattern's rows in another order.

    Attributes
    ----------
    pattern : Pattern
    blocks_from : int64 array (batch * nnzb,)
        Where its blocks come from.
    rows : int64 array (batch, block rows)
        Which row each one was.
    """

    pattern: Pattern
    blocks_from: Any
    rows: Any


def similar_row_groups(pattern: Pattern, rows: int, blocks_from: Any = None) -> RowGroups:
    """Do what `row_groups` does with similar block rows in a group; kept with the pattern.

    The groups' ``block_rows`` say which rows they are.
    """
    key = ("similar_row_groups", pattern.device, rows, blocks_from is not None)
    return pattern.memo(key, lambda: _build(pattern, rows, blocks_from))


def _build(pattern: Pattern, rows: int, blocks_from: Any) -> RowGroups:
    xp = pattern.xp
    if rows == 1 or pattern.indices.size == 0:
        return row_groups(pattern, rows, blocks_from)
    ordered = _ordered(pattern, row_order(pattern, rows))
    origin = ordered.blocks_from if blocks_from is None else blocks_from[ordered.blocks_from]
    groups = row_groups(ordered.pattern, rows, origin)
    batches, block_rows = ordered.rows.shape
    block_rows_of = xp.full((batches, ceil_div(block_rows, rows) * rows), -1, dtype=np.int32)
    block_rows_of[:, :block_rows] = ordered.rows
    return groups._replace(block_rows=block_rows_of.ravel())


def row_order(pattern: Pattern, rows: int) -> Any:
    """Return all block rows, numbered over the batch, with similar ones in runs of ``rows``."""
    xp, (block_rows, block_columns) = pattern.xp, pattern.block_shape
    matrices = size_of(pattern.batch_shape)
    windows = ceil_div(block_rows, _WINDOW)
    order = xp.empty(matrices * block_rows, dtype=np.int64)
    words = ceil_div(block_columns, 32 * _WORDS_AT_ONCE) * _WORDS_AT_ONCE
    words = min(words, _MOST_WORDS)
    kernel("bsr_row_order", INDEX=ctype(pattern.indices.dtype))(
        grid(matrices * windows),
        (_WINDOW,),
        (
            order,
            np.uint64(0) if windows == 1 else _by_signature(pattern),
            pattern.indptr,
            pattern.indices,
            np.int64(windows),
            np.int64(block_rows),
            np.int64(pattern.nnzb),
            np.int32(rows),
            np.int32(words),
        ),
        (_WINDOW + 1) * words * 4,
    )
    return order


def _by_signature(pattern: Pattern) -> Any:
    """Return all block rows, matrix by matrix, in the order of their signatures."""
    xp, block_rows = pattern.xp, pattern.block_shape[0]
    total = size_of(pattern.batch_shape) * block_rows
    keys = xp.empty((_HASHES + 1, total), dtype=np.uint32)  # the last one counts most
    keys[_HASHES] = xp.arange(total) // block_rows
    kernel("bsr_row_signature", INDEX=ctype(pattern.indices.dtype))(
        grid(ceil_div(total, THREADS // 32)),
        (THREADS,),
        (
            keys,
            pattern.indptr,
            pattern.indices,
            np.int64(total),
            np.int64(block_rows),
            np.int64(pattern.nnzb),
        ),
    )
    return xp.lexsort(keys)


def _ordered(pattern: Pattern, order: Any) -> _Ordered:
    """Return the pattern with its rows in an order that leaves every matrix to itself."""
    xp, (block_rows, _) = pattern.xp, pattern.block_shape
    batch = xp.arange(size_of(pattern.batch_shape), dtype=np.int64)[:, None]
    indptr = pattern.indptr.reshape(-1, block_rows + 1).astype(np.int64) + batch * pattern.nnzb
    begins = indptr[:, :-1].ravel()[order]
    lengths = (indptr[:, 1:] - indptr[:, :-1]).ravel()[order]
    ends = xp.cumsum(lengths)
    place = xp.arange(pattern.indices.size, dtype=np.int64)
    row = xp.searchsorted(ends, place, side="right")
    blocks_from = begins[row] + place - (ends - lengths)[row]
    moved = xp.zeros_like(indptr)
    moved[:, 1:] = ends.reshape(-1, block_rows) - batch * pattern.nnzb
    ordered = Pattern(
        moved.astype(pattern.indptr.dtype).reshape(pattern.indptr.shape),
        pattern.indices.ravel()[blocks_from].reshape(pattern.indices.shape),
        pattern.shape,
        pattern.blocksize,
        check=False,
        copy=False,
    )
    return _Ordered(ordered, blocks_from, order.reshape(-1, block_rows) - batch * block_rows)
