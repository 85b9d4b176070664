"""Which blocks meet in a product of two patterns, found row by row on the device.

Three steps, as in Gustavson, "Two fast algorithms for sparse matrices: multiplication and permuted
transposition", ACM TOMS 4 (1978): count the blocks of every row of the result; write their columns
where the prefix sums say; list, for each block, the pairs of blocks that it is the sum of. The
pairs are kept where they are few enough, else they are listed again for every product, a stretch
of rows after the other.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..._arrays import index_dtype
from ..._checks import bad_value
from ..._math import ceil_div
from ...pattern import Pattern
from .._pairs import Plan
from ._grid import grid
from .runtime.launch import NULL, Launch, Memset, Work, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype

#: Bytes of pairs that are listed at a time.
MOST_BYTES = 768 << 20

_THREADS, _WARPS = 128, 4
_SUMMING = 1024  # threads that add up the counts of the rows
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
    of_left, of_right : int64 arrays or None
        For every matrix of the result the number of the one it comes from; None: its own.
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
    left: Pattern,
    right: Pattern,
    batch: tuple[int, ...],
    exact: bool,
    function: str,
    argument: str,
) -> Plan:
    """Return the plan of a product, whose ``parts`` are `Lists`.

    The host waits for the device once, for the sizes of the result and of the lists; of int8
    operands (``exact``) once more, for the longest sum.

    Raises
    ------
    ValueError
        Where the matrices of a batch store different numbers of blocks.
    """
    xp, block_rows = left.xp, left.block_shape[0]
    matrices = prod(batch)
    rows, columns = matrices * block_rows, right.block_shape[1]
    number = index_dtype(max(left._indices.size, right._indices.size))
    of_left, of_right = (_matrix_numbers(p, batch) for p in (left, right))
    operands = _Operands(left, right, of_left, of_right, rows)
    nnzb = total = 0
    if rows and left.nnzb and right.nnzb:
        words = min(max(ceil_div(columns, 32), _FEWEST_WORDS), _MOST_WORDS)
        block_ends, pair_ends = (xp.empty(rows, _INT64) for _ in range(2))
        facts = xp.empty(4, _INT64)
        found = (block_ends, pair_ends, NULL, NULL, NULL)
        count = operands.rows_launch(found, 0, np.dtype(np.int32), words)
        sums = ends_launch(block_ends, pair_ends, facts, rows, block_rows)
        submit(count, sums, setup=True)
        nnzb, most, total, _ = facts.tolist()
        if nnzb != most:
            expected = "the same number of stored blocks in every batch of the result"
            raise bad_value(function, argument, expected, f"between {nnzb} and {most}")
    dtype, blocks = index_dtype(max(nnzb, block_rows, columns)), matrices * nnzb
    memory = xp.empty if total else xp.zeros  # without pairs nothing is written
    indptr = memory((*batch, block_rows + 1), dtype)
    starts = memory(blocks + 1, _INT64)
    pattern = Pattern(
        indptr,
        xp.empty((*batch, nnzb), dtype),
        (left.shape[0], right.shape[1]),
        (left.blocksize[0], right.blocksize[1]),
        check=False,
        copy=False,
    )
    pattern.note("order", (True, True))
    if not total:
        return Plan(pattern, 0, Lists(starts, (), None, of_left, of_right, number))
    counts = xp.empty(blocks, _UINT32)
    found = (NULL, NULL, pattern._indices, pattern._indptr, block_ends)
    fill = operands.rows_launch(found, nnzb, pattern._indices.dtype, words)
    ends = (pair_ends, facts)
    of_blocks = operands.pairs_launch(pattern, NULL, counts, starts, ends, np.dtype(np.int32), None)
    submit(fill, of_blocks, setup=True)
    longest = int(facts[3]) if exact else total
    whole, most = Stretch(0, rows, 0, blocks, 0, total), MOST_BYTES // (2 * number.itemsize)
    stretches = (whole,) if total <= most else _stretches(pair_ends, block_ends, total, most)
    lists = Lists(starts, stretches, None, of_left, of_right, number)
    if len(stretches) == 1:
        lists = lists._replace(pairs=xp.empty((total, 2), number))
        none = (NULL, NULL)
        submit(
            operands.pairs_launch(pattern, lists.pairs, counts, starts, none, number, stretches[0]),
            setup=True,
        )
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
    none = (NULL, NULL)
    launch = operands.pairs_launch(
        pattern, pairs, written, lists.starts, none, lists.dtype, stretch
    )
    return Memset(written.data.ptr, written.nbytes), launch


def ends_launch(block_ends: Any, pair_ends: Any, facts: Any, rows: int, block_rows: int) -> Launch:
    """Return what makes sums of the counts of rows, of so many in each matrix."""
    numbers = np.int64(rows), np.int64(block_rows)
    compiled = kernel("bsr_spgemm_ends")
    return Launch(compiled, (1,), (_SUMMING,), (block_ends, pair_ends, facts, *numbers))


class _Operands:
    """The patterns of a product as kernels take them."""

    def __init__(self, left: Pattern, right: Pattern, of_left: Any, of_right: Any, rows: int):
        wide = np.promote_types(left._indices.dtype, right._indices.dtype)
        self._index, self._rows = ctype(wide), rows
        self._arrays = tuple(
            x.astype(wide, copy=False) for p in (left, right) for x in (p._indptr, p._indices)
        )
        self._numbers = tuple(NULL if x is None else x for x in (of_left, of_right))
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
        pairs: Any,
        counts: Any,
        starts: Any,
        ends: tuple[Any, Any],
        number: np.dtype,
        stretch: Stretch | None,
    ) -> Launch:
        """Return what finds where the pairs of every block start, or lists those of a stretch.

        ``ends`` are those of the rows and the facts; only the former needs them.
        """
        source = "bsr_spgemm_pairs"
        names = {"FILL": int(stretch is not None), "INDEX": self._index}
        names |= {"OUT_INDEX": ctype(pattern._indices.dtype), "PAIR": ctype(number)}
        row, base = (0, 0) if stretch is None else (stretch.row, stretch.base)
        rows = self._rows if stretch is None else stretch.rows
        return Launch(
            kernel(source, **names),
            grid(rows if stretch is None else ceil_div(rows, _WARPS)),
            (_THREADS,),
            (
                *(pairs, counts, starts, *ends, pattern._indptr, pattern._indices),
                *self._arrays,
                *self._numbers,
                self._problem(source, pattern.nnzb, row=row, base=base),
            ),
        )


def _matrix_numbers(pattern: Pattern, batch: tuple[int, ...]) -> Any:
    """Return, for every matrix of the result, the number of the one it comes from.

    None where it is the one of the same number.
    """
    if pattern.batch_shape == batch:
        return None
    own = np.arange(pattern.batch_size, dtype=_INT64).reshape(pattern.batch_shape)
    return pattern.xp.asarray(np.broadcast_to(own, batch).ravel())


def _stretches(pair_ends: Any, block_ends: Any, total: int, most: int) -> tuple[Stretch, ...]:
    """Cut the rows into stretches of at most ``most`` of ``total`` pairs, or of one row.

    ``pair_ends`` and ``block_ends`` count the pairs and the blocks up to each row. The host waits
    for some of these numbers.
    """
    rows = pair_ends.size
    cut: list[Stretch] = []
    row = base = block = 0
    while base < total:
        fit = rows if total - base <= most else int((pair_ends <= base + most).sum())
        last = max(fit, row + 1)
        end, block_end = int(pair_ends[last - 1]), int(block_ends[last - 1])
        if end > base:
            cut.append(Stretch(row, last - row, block, block_end - block, base, end - base))
        row, base, block = last, end, block_end
    return tuple(cut)
