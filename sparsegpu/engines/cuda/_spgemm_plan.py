"""Which blocks meet in a product of two patterns, found row by row on the device.

Three steps, as in Gustavson, "Two fast algorithms for sparse matrices: multiplication and permuted
transposition", ACM TOMS 4 (1978): count the blocks of every row of the result; write their columns
where the prefix sums say; list, for each block, the pairs of blocks that it is the sum of. The
pairs are kept where they are few enough, else they are listed again for every product, a stretch
of rows after the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..._arrays import index_dtype, namespace
from ..._checks import bad_value
from ..._math import ceil_div
from ...pattern import Pattern
from .._pairs import Plan
from ._grid import grid, size_of
from .runtime.launch import NULL, Launch, Memset, Work, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype

#: Bytes of pairs that are listed at a time.
MOST_BYTES = 768 << 20

_THREADS, _WARPS = 128, 4
_FEWEST_WORDS, _MOST_WORDS = 1536, 4096  # of shared memory; a hash table and its list, 16 KB
_INT64, _UINT32 = np.dtype(np.int64), np.dtype(np.uint32)


class Stretch(NamedTuple):
    """Rows of the result whose pairs are listed at a time.

    Attributes
    ----------
    row, rows : int
        The first one, of all matrices, and how many.
    block, blocks : int
        Their blocks.
    base, pairs : int
        Their pairs.
    """

    row: int
    rows: int
    block: int
    blocks: int
    base: int
    pairs: int


class Lists(NamedTuple):
    """The ``parts`` of a plan.

    Attributes
    ----------
    starts : int64 array (blocks + 1,)
        The pairs of block g are numbers ``starts[g]..starts[g + 1]``.
    stretches : tuple of Stretch
    pairs : array (pairs, 2), or None
        Of the one stretch, where there is one: numbers of a left and of a right block, counted over
        the batch.
    of_left, of_right : int64 arrays
        For every matrix of the result the number of the one it comes from.
    dtype : dtype
        Of the pairs.
    """

    starts: Any
    stretches: tuple[Stretch, ...]
    pairs: Any
    of_left: Any
    of_right: Any
    dtype: np.dtype


def make_plan(
    left: Pattern, right: Pattern, batch: tuple[int, ...], function: str, argument: str
) -> Plan:
    """Return the plan of a product, whose ``parts`` are `Lists`.

    Raises
    ------
    ValueError
        Where the matrices of a batch store different numbers of blocks.
    """
    xp, block_rows = left.xp, left.block_shape[0]
    matrices = size_of(batch)
    rows, columns = matrices * block_rows, right.block_shape[1]
    of_left, of_right = (_matrix_numbers(p, batch) for p in (left, right))
    counts, pairs = xp.zeros((2, rows), _INT64)
    operands = _Operands(left, right, of_left, of_right, rows)
    words = min(max(ceil_div(columns, 32), _FEWEST_WORDS), _MOST_WORDS)
    if rows and left.nnzb and right.nnzb:
        launch = operands.rows_launch((counts, pairs, NULL, NULL), 0, np.dtype(np.int32), words)
        submit(launch, setup=True)
    ends = xp.cumsum(counts)
    nnzb = _blocks_of_a_matrix(ends, matrices, function, argument)
    dtype = index_dtype(max(nnzb, block_rows, columns))
    indptr = xp.zeros((matrices, block_rows + 1), dtype)
    matrix = xp.arange(matrices, dtype=_INT64)[:, None]
    indptr[:, 1:] = ends.reshape(matrices, block_rows) - matrix * nnzb
    indices = xp.empty((matrices, nnzb), dtype)
    if indices.size:
        launch = operands.rows_launch((NULL, NULL, indices, indptr), nnzb, dtype, words)
        submit(launch, setup=True)
    pattern = Pattern(
        indptr.reshape(*batch, block_rows + 1),
        indices.reshape(*batch, nnzb),
        (left.shape[0], right.shape[1]),
        (left.blocksize[0], right.blocksize[1]),
        check=False,
        copy=False,
    )
    starts, longest = _starts(operands, pattern)
    number = index_dtype(max(left._indices.size, right._indices.size))
    stretches = _stretches(pairs, ends, MOST_BYTES // (2 * number.itemsize))
    lists = Lists(starts, stretches, None, of_left, of_right, number)
    if len(stretches) == 1:
        lists = lists._replace(pairs=xp.empty((stretches[0].pairs, 2), number))
        written = xp.empty(indices.size, _UINT32)
        for work in list_works(lists, stretches[0], pattern, left, right, lists.pairs, written):
            submit(work, setup=True)
    return Plan(pattern, longest, lists)


def list_works(
    lists: Lists,
    stretch: Stretch,
    pattern: Pattern,
    left: Pattern,
    right: Pattern,
    pairs: Any,
    written: Any,
) -> tuple[Work, ...]:
    """Return what lists the pairs of a stretch.

    ``written``, uint32, has a number for every block of the result.
    """
    operands = _Operands(left, right, lists.of_left, lists.of_right, stretch.rows)
    launch = operands.pairs_launch(pattern, lists.starts, pairs, written, lists.dtype, stretch)
    return Memset(written), launch


class _Operands:
    """The patterns of a product as kernels take them."""

    def __init__(self, left: Pattern, right: Pattern, of_left: Any, of_right: Any, rows: int):
        wide = np.promote_types(left._indices.dtype, right._indices.dtype)
        self._index, self._rows = ctype(wide), rows
        self._arrays = tuple(
            x.astype(wide, copy=False) for p in (left, right) for x in (p._indptr, p._indices)
        )
        self._numbers = of_left, of_right
        self._facts = {
            "block_rows": left.block_shape[0],
            "inner": left.block_shape[1],
            "left_nnzb": left.nnzb,
            "right_nnzb": right.nnzb,
        }

    def _problem(self, source: str, out_nnzb: int, words: int = 0, row: int = 0, base: int = 0):
        return kernel_struct(source, "ResultRows")(
            rows=self._rows,
            **self._facts,
            out_nnzb=out_nnzb,
            first_row=row,
            base=base,
            words=words,
        )

    def rows_launch(self, results: tuple, nnzb: int, dtype: np.dtype, words: int) -> Launch:
        """Return what counts the blocks of every row, or writes their columns."""
        source, fill = "bsr_spgemm_rows", int(results[2] is not NULL)
        return Launch(
            kernel(source, FILL=fill, INDEX=self._index, OUT_INDEX=ctype(dtype)),
            grid(self._rows),
            (_THREADS,),
            (*results, *self._arrays, *self._numbers, self._problem(source, nnzb, words)),
            4 * words,
        )

    def pairs_launch(
        self,
        pattern: Pattern,
        starts: Any,
        pairs: Any,
        counts: Any,
        number: np.dtype,
        stretch: Stretch | None,
    ) -> Launch:
        """Return what counts the pairs of every block, or lists those of a stretch."""
        source = "bsr_spgemm_pairs"
        names = {"FILL": int(stretch is not None), "INDEX": self._index}
        names |= {"OUT_INDEX": ctype(pattern._indices.dtype), "PAIR": ctype(number)}
        row, base = (0, 0) if stretch is None else (stretch.row, stretch.base)
        return Launch(
            kernel(source, **names),
            grid(self._rows if stretch is None else ceil_div(self._rows, _WARPS)),
            (_THREADS,),
            (
                *(pairs, counts, starts, pattern._indptr, pattern._indices),
                *self._arrays,
                *self._numbers,
                self._problem(source, pattern.nnzb, row=row, base=base),
            ),
        )


def _matrix_numbers(pattern: Pattern, batch: tuple[int, ...]) -> Any:
    """Return, for every matrix of the result, the number of the one it comes from."""
    xp = pattern.xp
    own = xp.arange(pattern.batch_size, dtype=_INT64).reshape(pattern.batch_shape)
    return xp.ascontiguousarray(xp.broadcast_to(own, batch).ravel())


def _blocks_of_a_matrix(ends: Any, matrices: int, function: str, argument: str) -> int:
    """Return how many blocks every matrix of the result stores; ``ends`` counts them by rows."""
    if not ends.size:
        return 0
    if matrices == 1:
        return int(ends[-1])
    counts = namespace(ends).diff(ends.reshape(matrices, -1)[:, -1], prepend=0)
    low, high = int(counts.min()), int(counts.max())
    if low != high:
        expected = "the same number of stored blocks in every batch"
        raise bad_value(function, argument, expected, f"between {low} and {high}")
    return low


def _starts(operands: _Operands, pattern: Pattern) -> tuple[Any, int]:
    """Return where the pairs of every block start, and how many a block has at most."""
    xp, blocks = pattern.xp, pattern._indices.size
    starts = xp.zeros(blocks + 1, _INT64)
    if not blocks:
        return starts, 0
    counts = xp.zeros(blocks, _UINT32)
    number = np.dtype(np.int32)
    submit(operands.pairs_launch(pattern, NULL, NULL, counts, number, None), setup=True)
    starts[1:] = xp.cumsum(counts, dtype=_INT64)
    return starts, int(counts.max())


def _stretches(pairs: Any, block_ends: Any, most: int) -> tuple[Stretch, ...]:
    """Cut the rows into stretches of at most ``most`` pairs, or of one row.

    ``pairs`` are those of every row, ``block_ends`` counts the blocks of the rows.
    """
    rows = pairs.size
    ends = namespace(pairs).cumsum(pairs)
    total = int(ends[-1]) if rows else 0
    cut: list[Stretch] = []
    row = base = block = 0
    while base < total:
        fit = rows if total - base <= most else int((ends <= base + most).sum())
        last = max(fit, row + 1)
        end, block_end = int(ends[last - 1]), int(block_ends[last - 1])
        if end > base:
            cut.append(Stretch(row, last - row, block, block_end - block, base, end - base))
        row, base, block = last, end, block_end
    return tuple(cut)
