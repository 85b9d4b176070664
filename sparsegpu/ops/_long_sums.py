"""int8 sums of more products than int32 holds: cut into pieces, which are added in int64.

Engines sum products of int8 in int32. Up to `MOST` products of any values fit; a longer sum could
overflow. So an operation splits longer sums before it calls an engine: every piece becomes a row (a
group, a slice of K) of its own, which the engine sums like any other. The pieces are added here,
in int64, and the epilogue is applied once, to the exact sums. That is the same for all engines,
and where no row is long it costs a comparison of sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .._epilogue import Epilogue, apply_epilogue
from .._format_24 import FORMATS
from .._math import ceil_div
from .._segments import expand_counts
from ..pattern import Pattern

#: Products of two int8 whose sum int32 holds, whatever they are: each is at most 2**14.
MOST = (2**31 - 1) // 2**14

_INT8, _INT32, _INT64 = (np.dtype(d) for d in (np.int8, np.int32, np.int64))


class Cut(NamedTuple):
    """Groups of terms, the long ones cut.

    Attributes
    ----------
    ends : int64 array (*batch, pieces + 1)
        Piece i has the terms ``ends[i]..ends[i + 1]``.
    first : int64 array (groups,)
        The first piece of each group; even an empty group has one.
    further : tuple of int64 arrays
        The groups that have a second piece, those that have a third, ...
    """

    ends: Any
    first: Any
    further: tuple[Any, ...]

    @property
    def pieces(self) -> int:
        """Number of pieces."""
        return int(self.ends.shape[-1]) - 1


class CutPattern(NamedTuple):
    """A pattern whose long block rows were cut, over the same blocks."""

    pattern: Pattern
    cut: Cut


def may_be_long(dtype: np.dtype, terms: int, products: int) -> bool:
    """Whether ``terms`` of so many products each may have a sum that int32 does not hold."""
    return dtype == _INT8 and terms * products > MOST


def cut_groups(starts: Any, most: int, xp: ModuleType) -> Cut:
    """Cut groups ``starts[i]..starts[i + 1]`` of terms into pieces of at most ``most`` terms.

    ``starts`` may have batch dimensions. Then a group has as many pieces in every matrix as where
    it is longest, so that all matrices number groups and pieces in the same way.
    """
    starts = starts.astype(_INT64)
    count = xp.diff(starts)
    pieces = xp.maximum(ceil_div(count, most), 1).reshape(-1, count.shape[-1]).max(axis=0)
    first = xp.cumsum(pieces) - pieces
    group, number = expand_counts(pieces)
    begin = starts[..., group] + number * most
    begin = xp.minimum(begin, starts[..., group + 1])
    ends = xp.concatenate([begin, starts[..., -1:]], axis=-1)
    further = tuple(xp.flatnonzero(pieces > i) for i in range(1, int(pieces.max())))
    return Cut(ends, first, further)


def cut_pattern(pattern: Pattern, products: int) -> CutPattern | None:
    """Return the pattern with its long rows cut, or None where no row is long.

    In a block, ``products`` of each of its rows are summed. Made once and kept with the pattern.
    """
    if pattern.longest_row * products <= MOST:
        return None

    def build() -> CutPattern:
        (bm, bk), k = pattern.blocksize, pattern.shape[1]
        cut = cut_groups(pattern._indptr, MOST // products, pattern.xp)
        shape = cut.pieces * bm, k
        rows = Pattern(cut.ends, pattern._indices, shape, (bm, bk), check=False, copy=False)
        return CutPattern(rows, cut)

    return pattern.memo(("long rows", products), build)


def added(parts: Any, cut: Cut) -> Any:
    """Return the sums of the groups in int64, of their pieces' int32 sums (..., pieces, m, n)."""
    sums = parts[..., cut.first, :, :].astype(_INT64)
    for piece, groups in enumerate(cut.further, start=1):
        sums[..., groups, :, :] += parts[..., cut.first[groups] + piece, :, :]
    return sums


def add_rows(
    engine_addmm: Callable, out: Any, rows: CutPattern, operands: tuple, epilogue: Epilogue
) -> None:
    """Write a block-sparse product: ``engine_addmm(out, pattern, *operands, epilogue)``."""
    xp, (bm, _), n = rows.pattern.xp, rows.pattern.blocksize, out.shape[-1]
    parts = xp.empty((*out.shape[:-2], rows.pattern.shape[0], n), _INT32)
    engine_addmm(parts, rows.pattern, *operands, Epilogue())
    sums = added(parts.reshape(*out.shape[:-2], rows.cut.pieces, bm, n), rows.cut)
    apply_epilogue(sums.reshape(out.shape), epilogue, out)


def add_slices(
    engine_product: Callable, out: Any, k: int, most: int, epilogue: Epilogue, xp: ModuleType
) -> None:
    """Write a sum over k, slice by slice: ``engine_product(part, k0, k1)``."""
    sums, part = xp.zeros(out.shape, _INT64), xp.empty(out.shape, _INT32)
    for first in range(0, k, most):
        engine_product(part, first, min(first + most, k))
        sums += part
    apply_epilogue(sums, epilogue, out)


def semi_structured_in_slices(engine_addmm: Callable, xp: ModuleType) -> Callable[..., None]:
    """Return an engine's 2:4 product that cuts long rows, for the same arguments."""
    form = FORMATS[_INT8]
    # Whole pairs of metadata columns, which are contiguous in the reordered metadata.
    most = 2 * MOST // form.columns * form.columns

    def addmm(
        out: Any, packed: Any, meta: Any, dense: Any, epilogue: Epilogue, **keywords: Any
    ) -> None:
        m, k = packed.shape[0], 2 * packed.shape[1]
        words = xp.ascontiguousarray(meta).reshape(-1)

        def product(part: Any, first: int, last: int) -> None:
            c0, c1 = form.meta_columns(first), form.meta_columns(last)
            engine_addmm(
                part,
                packed[:, first // 2 : last // 2],
                words[m * c0 : m * c1].reshape(m, c1 - c0),
                dense[..., first:last, :],
                Epilogue(),
                **keywords,
            )

        add_slices(product, out, k, most, epilogue, xp)

    return addmm
