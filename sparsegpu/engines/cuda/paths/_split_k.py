"""Split-K for row groups that are much longer than the others.

One thread block computes the tile of a group. All others would wait for a group that has many times
their columns: so it is split, the partial sums go to workspace and are added in a fixed order
(``bsr_addmm_sm90_reduce.cu``). The length of the longest group decides whether any is split; it is
copied to the host once a pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...._math import ceil_div
from ....pattern import Pattern
from .._arena import Arrays
from .._schedule import RowGroups
from ._row_split import cut_rows

# Groups are split where the longest one has more entries than each of these:
_USUAL = 3  # times the average,
_LATE = 2  # a share of the entries of a thread block,
_LEAST_TERMS = 1024  # rows of `dense`: fewer are not worth the traffic of partial sums.
# A split has at most the last of them, twice the average, or this part of a share:
_PART = 8


class CutGroups(NamedTuple):
    """Row groups of which the long ones are split.

    Attributes
    ----------
    groups : RowGroups
        Its splits, longest first.
    cut : int32 array (n, 3)
        Of every group that is split: its number, its first split, the number of splits.
    parts : int
        Splits of all groups; 0: no group was long.
    """

    groups: RowGroups
    cut: Any = None
    parts: int = 0


def cut_row_groups(
    pattern: Pattern,
    rows: int,
    blocks_from: Any,
    grouped: Callable[..., RowGroups],
    share: int,
) -> CutGroups:
    """Return the row groups of a pattern with the long ones split; kept with the pattern.

    Parameters
    ----------
    pattern : Pattern
        Batched ones are not split: their matrices would have different numbers of splits.
    rows, blocks_from
        As of `row_groups`.
    grouped : callable
        What groups the rows: `row_groups`, or `similar_row_groups`.
    share : int
        Entries of each thread block, about.
    """
    groups = grouped(pattern, rows, blocks_from)
    usual = ceil_div(pattern.nnzb, groups.groups)
    least = ceil_div(_LEAST_TERMS, pattern.blocksize[1])
    long = max(_USUAL * usual, share // _LATE, least)
    most = max(2 * usual, share // _PART, least)
    if pattern.batch_size > 1 or pattern.block_shape[1] <= long:
        return CutGroups(groups)
    key = ("long groups", pattern.device, grouped.__name__, rows, blocks_from is not None)
    if pattern.memo(key, lambda: int(groups.counts.max())) <= long:
        return CutGroups(groups)
    return pattern.memo((*key, most), lambda: cut(groups, most, pattern.xp))


def cut(groups: RowGroups, most: int, xp: Any) -> CutGroups:
    """Split all groups into runs of at most so many entries."""
    bounds = xp.zeros(groups.groups + 1, np.int64)
    bounds[1:] = xp.cumsum(groups.counts, dtype=np.int64)
    splits, table = cut_rows(bounds, most, xp)
    begin, end, group = splits.T[:3]
    counts = (end - begin).astype(np.int32)
    arrays = Arrays(
        groups.starts[group] + (begin - bounds[group]),
        counts,
        groups.columns,
        groups.blocks,
        xp.argsort(-counts, kind="stable").astype(np.int32),
    )
    moved = RowGroups(
        arrays,
        groups.rows,
        len(counts),
        groups.block_rows,
        xp.ascontiguousarray(splits[:, 2:]).astype(np.int32),
    )
    return CutGroups(moved, table.astype(np.int32), int(table[:, 2].sum()))
