"""Rows of very different lengths, split into work of similar size; made on the device, kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...._math import ceil_div
from ....pattern import Pattern

_USUAL = 4  # times the average: longer rows are split
_FEWEST = 8  # blocks: the average counts as at least that
_MOST_SPLITS = 8192  # of a row


@dataclass(frozen=True, slots=True)
class RowSplits:
    """Rows of very different lengths as work of similar size.

    Attributes
    ----------
    splits : int64 array (*batch, n, 4)
        First block, end, block row, and the index of its partial sums, -1 for a row that is not
        split. Longest first (LPT order).
    rows : int64 array (*batch, m, 3)
        Of every row that is split: block row, index of its first partial sums, their number.
    parts : int
        Partial sums of a matrix.
    """

    splits: Any
    rows: Any
    parts: int


def balanced_splits(pattern: Pattern) -> RowSplits | None:
    """Return the splits of rows, or None where they are of similar lengths; kept.

    Parameters
    ----------
    pattern : Pattern
    """
    return pattern.memo("row splits", lambda: (_balance(pattern),))[0]


def _balance(pattern: Pattern) -> RowSplits | None:
    xp, rows = pattern.xp, pattern.block_shape[0]
    indptr = pattern._indptr.reshape(-1, rows + 1).astype(np.int64)
    longest = int((indptr[:, 1:] - indptr[:, :-1]).max())
    usual = _USUAL * max(pattern.nnzb // rows, _FEWEST)
    if longest <= usual:
        return None
    most = max(usual, ceil_div(longest, _MOST_SPLITS))
    cut = [cut_rows(starts, most, xp) for starts in indptr]
    splits, tables = ([c[i] for c in cut] for i in (0, 1))
    parts = max(int(table[:, 2].sum()) for table in tables)
    # The matrices of a batch are padded to one number of splits by empty ones, whose sums go to
    # partial sums that nothing reads.
    batch = pattern.batch_shape
    return RowSplits(
        _stack(splits, [0, 0, 0, parts], xp).reshape(*batch, -1, 4),
        _stack(tables, [0, 0, 0], xp).reshape(*batch, -1, 3),
        parts + 1,
    )


def cut_rows(starts: Any, most: int, xp: Any) -> tuple[Any, Any]:
    """Return splits of at most ``most`` blocks, and the rows in several, as in `RowSplits`."""
    length = starts[1:] - starts[:-1]
    count = xp.maximum(ceil_div(length, most), 1)
    ends = xp.cumsum(count)
    split = xp.arange(int(ends[-1]), dtype=np.int64)
    row = xp.searchsorted(ends, split, side="right").astype(np.int64)
    begin = starts[row] + (split - ends[row] + count[row]) * most
    end = xp.minimum(begin + most, starts[row + 1])
    several = count > 1
    in_several = several[row]
    part = xp.where(in_several, xp.cumsum(in_several) - 1, -1)
    size = xp.floor(xp.log2((end - begin + 1).astype(np.float64))).astype(np.int64)
    order = xp.argsort(-size, kind="stable")
    cut = xp.flatnonzero(several)
    first = part[(ends - count)[cut]]
    return (
        xp.stack([begin, end, row, part], axis=1)[order],
        xp.stack([cut.astype(np.int64), first, count[cut]], axis=1),
    )


def _stack(tables: list[Any], filler: list[int], xp: Any) -> Any:
    """Return tables of equal width as one array, the shorter ones padded."""
    height = max(table.shape[0] for table in tables)
    stacked = xp.empty((len(tables), height, len(filler)), np.int64)
    stacked[...] = xp.asarray(filler, dtype=np.int64)
    for whole, table in zip(stacked, tables, strict=True):
        whole[: table.shape[0]] = table
    return stacked
