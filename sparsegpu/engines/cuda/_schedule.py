"""Row groups: block rows that share tiles of the dense operand.

A tensor-core product works on some 128 element rows at a time. Where a block has fewer, a group of
consecutive block rows takes the union of its block columns, and every tile of the dense operand is
loaded once for all of them. This schedule depends on the pattern alone: it is made on the device at
the first call and kept with the pattern.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..._arrays import namespace
from ..._math import ceil_div, power_of_two_from
from ...pattern import Pattern, index_dtype
from ._arena import Arena, Arrays
from ._grid import THREADS, grid
from .runtime.launch import Launch, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype

#: Block rows of a group, at most.
MOST_ROWS = 256

#: Up to so many numbers are sorted by comparing all with all (`bsr_schedule_order.cu`), and as many
#: comparisons are made of the numbers of several matrices.
RANKED = 8192
#: Up to so many groups are sorted by the launch that makes them.
RANKED_AT_ONCE = 256

_MOST_THREADS = 1024
_SHARED = 94 * 1024  # bytes that every architecture grants, besides static shared memory
_TILE = 1024  # columns; their bits are 128 bytes
_TILE_BYTES = _TILE // 8
#: The arrays of a schedule, by their names in the kernels.
_ARRAYS = ("starts", "counts", "columns", "blocks", "order", "block_rows", "splits")
_ORDER = 4  # index of `order` among them
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


class RowGroups:
    """A schedule of row groups. Groups are numbered matrix by matrix, top to bottom.

    Parameters
    ----------
    parts : Arena or Arrays
        `starts`, `counts`, `columns`, `blocks` and `order`.
    rows, groups, block_rows, splits
        See the attributes.

    Attributes
    ----------
    starts : int64 array (groups,)
        Where a group's entries start in `columns`. Between two groups there may be a gap.
    counts : int32 array (groups,)
        Entries of a group: one for each block column that any of its rows has. Where a row has a
        column several times, that column has as many entries.
    columns : int32 array (batch * nnzb,)
        Block column of each entry, ascending within a group.
    blocks : int32 array (batch * nnzb * rows,), int64 where 32 bits do not reach
        For entry ``e`` and row ``r`` of its group, at ``e * rows + r``: the block, counted over
        the batch, or -1. Of blocks at one position the earlier one has the earlier entry.
    order : int32 array (groups,)
        Group numbers, matrix by matrix, most entries first; where these agree, the lower number
        first.
    rows : int
        Block rows of a group. The last group of a matrix may lack some: -1 throughout.
    groups : int
    block_rows : int32 array (groups * rows,), or None
        Block row of its matrix that each row of a group is, -1 for rows that a group lacks; None:
        they are consecutive.
    splits : int32 array (groups, 2), or None
        Where some groups were split (`paths/_split_k.py`): then everything but `block_rows` is by
        split. The group of each, and where its partial sums go, -1 for a whole group.
    """

    __slots__ = ("_parts", "block_rows", "groups", "rows", "splits")

    def __init__(
        self,
        parts: Arena | Arrays,
        rows: int,
        groups: int,
        block_rows: Any = None,
        splits: Any = None,
    ):
        self._parts, self.rows, self.groups = parts, rows, groups
        self.block_rows, self.splits = block_rows, splits

    starts = property(lambda self: self._parts.array(0))
    counts = property(lambda self: self._parts.array(1))
    columns = property(lambda self: self._parts.array(2))
    blocks = property(lambda self: self._parts.array(3))
    order = property(lambda self: self._parts.array(_ORDER))

    def argument(self) -> bytes:
        """Return the kernel argument ``RowGroups`` (`common/row_groups.cuh`)."""
        groups = kernel_struct("bsr_addmm_groups", "RowGroups")
        more = (0 if a is None else a.data.ptr for a in (self.block_rows, self.splits))
        return groups(**dict(zip(_ARRAYS, (*self._parts.addresses, *more), strict=True)))


class OrderedRows(NamedTuple):
    """A pattern's block rows in another order.

    Attributes
    ----------
    block_rows : int32 array (batch * rows rounded up to groups,)
        Which row of its matrix each one was; -1 behind the last.
    indptr : array like the pattern's
        Of the rows in that order.
    """

    block_rows: Any
    indptr: Any


def row_groups(pattern: Pattern, rows: int, blocks_from: Any = None) -> RowGroups:
    """Return the groups of ``rows`` block rows of a pattern on the device; kept with the pattern.

    Parameters
    ----------
    pattern : Pattern
        On the GPU, of fewer than 2**31 block columns. Unsorted and repeated columns are fine.
    rows : int
        1 to `MOST_ROWS`.
    blocks_from : int64 array (batch * nnzb,), optional
        Where blocks come from, when ``pattern`` is the transpose of the caller's: the second part
        of `Pattern.transposed`. The entries then name the caller's blocks.
    """
    key = ("row_groups", pattern.device, rows, blocks_from is not None)
    return pattern.memo(key, lambda: build_groups(pattern, rows, blocks_from))


def build_groups(
    pattern: Pattern, rows: int, blocks_from: Any, ordered: OrderedRows | None = None
) -> RowGroups:
    """Return the groups of a pattern, of its rows in another order where one is given."""
    per_matrix = ceil_div(pattern.block_shape[0], rows)
    groups, blocks = prod(pattern.batch_shape) * per_matrix, pattern._indices.size
    parts = Arena(
        pattern.xp,
        (groups, _INT64),
        (groups, _INT32),
        (blocks, _INT32),
        (blocks * rows, index_dtype(blocks)),
        (groups, _INT32),
    )
    at_once = groups <= RANKED_AT_ONCE
    if groups:
        _launch(parts, pattern, rows, groups, blocks_from, ordered, at_once)
    built = RowGroups(parts, rows, groups, None if ordered is None else ordered.block_rows)
    if not at_once:
        rank_descending(built.order, built.counts, per_matrix)
    return built


def _launch(
    parts: Arena,
    pattern: Pattern,
    rows: int,
    groups: int,
    blocks_from: Any,
    ordered: OrderedRows | None,
    at_once: bool,
) -> None:
    """Launch the kernel that makes all arrays of a schedule, the order only if ``at_once``."""
    starts, counts, columns, block_numbers, order = parts.addresses
    block_rows, block_columns = pattern.block_shape
    blocks, per_matrix = pattern._indices.size, ceil_div(block_rows, rows)
    width, narrow_width, shared_memory = stretches(block_columns, rows)
    if at_once:
        shared_memory = max(shared_memory, groups * _INT32.itemsize)
    stored = pattern._indptr.data.ptr
    argument = kernel_struct("bsr_schedule", "Schedule")(
        starts=starts,
        counts=counts,
        columns=columns,
        blocks=block_numbers,
        order=order if at_once else 0,
        indptr=stored if ordered is None else ordered.indptr.data.ptr,
        indices=pattern._indices.data.ptr,
        of_rows=0 if ordered is None else ordered.block_rows.data.ptr,
        stored_indptr=stored,
        blocks_from=0 if blocks_from is None else blocks_from.data.ptr,
        groups=groups,
        groups_per_matrix=per_matrix,
        block_rows=block_rows,
        block_columns=block_columns,
        nnzb=pattern.nnzb,
        rows=rows,
        width=width,
        narrow_width=narrow_width,
    )
    index, number = ctype(pattern._indices.dtype), ctype(index_dtype(blocks))
    launch = Launch(
        kernel("bsr_schedule", INDEX=index, BLOCK=number),
        grid(groups),
        (_threads(ceil_div(blocks, groups), block_columns),),
        (argument,),
        shared_memory,
    )
    submit(*([parts.cleared(_ORDER)] if at_once else []), launch, setup=True)


def rank_descending(order: Any, values: Any, per_matrix: int) -> None:
    """Write the numbers of some values, matrix by matrix, the largest value first.

    Where values agree, the lower number comes first. Comparing all with all is one short launch,
    but grows with the square of their number: many are sorted, which takes several launches and
    scratch memory.

    Parameters
    ----------
    order, values : int32 arrays (n,)
    per_matrix : int
        Values of a matrix.
    """
    n = values.size
    if n * per_matrix <= RANKED**2:
        launch = Launch(
            kernel("bsr_schedule_order"),
            grid(ceil_div(n, THREADS // 32)),
            (THREADS,),
            (order, values, np.int32(n), np.int32(per_matrix)),
        )
        submit(launch, setup=True)
        return
    xp = namespace(values)
    # ~ reverses the order, and unlike - it does so for all integers.
    sorted_ = xp.argsort(~values.reshape(-1, per_matrix), axis=-1, kind="stable")
    order[...] = (sorted_ + xp.arange(0, n, per_matrix)[:, None]).reshape(-1)


def stretches(block_columns: int, rows: int) -> tuple[int, int, int]:
    """Return the columns that a thread block takes at a time, and its shared memory in bytes.

    Without repeated blocks every row has a bit a column, and the union a bit and a count a word;
    with them there is a count for every row and one more.

    Returns
    -------
    width, narrow_width, shared_memory : int

    Examples
    --------
    >>> stretches(512, 8)
    (1024, 512, 18432)
    >>> stretches(100_000, 8)
    (76800, 2673, 96256)
    """
    by_bit, by_count = (rows + 2) * _TILE_BYTES, (rows + 1) * 4
    tiles = max(1, min(ceil_div(block_columns, _TILE), _SHARED // by_bit))
    shared_memory = max(tiles * by_bit, min(max(block_columns, 1) * by_count, _SHARED))
    return tiles * _TILE, shared_memory // by_count, shared_memory


def _threads(blocks: int, block_columns: int) -> int:
    """Return the threads for a group: one for each block or eight columns, within reason."""
    work = max(blocks, block_columns // 8, 128)
    return min(power_of_two_from(work), _MOST_THREADS)
