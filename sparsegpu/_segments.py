"""Segments of arrays: runs of equal keys, and items that are numbered within their owners."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._arrays import namespace


def starts_run(keys: Any) -> Any:
    """Return which elements of sorted ``keys`` differ from the one before."""
    starts = namespace(keys).ones(keys.shape, dtype=bool)
    starts[1:] = keys[1:] != keys[:-1]
    return starts


def expand_counts(counts: Any) -> tuple[Any, Any]:
    """Return the owner of each of ``counts.sum()`` items and its number with that owner, int64.

    Examples
    --------
    >>> expand_counts(np.array([2, 0, 1]))
    (array([0, 0, 2]), array([0, 1, 0]))
    """
    xp = namespace(counts)
    ends = xp.cumsum(counts, dtype=np.int64)
    item = xp.arange(int(ends[-1]) if ends.size else 0, dtype=np.int64)
    owner = xp.searchsorted(ends, item, side="right")
    return owner, item - (ends - counts)[owner]
