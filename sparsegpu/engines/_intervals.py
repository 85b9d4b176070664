"""Masks in which every query attends to one interval of keys: how it follows from the query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Intervals(NamedTuple):
    """A band of diagonals, within the documents of a sequence, and a prefix.

    Query i attends to key j if ``-lower <= j - i <= upper`` and both are of one document, or if
    ``j < prefix``. So neither end of a query's interval ever decreases from query to query, and no
    interval starts behind the end of the one before it.

    Attributes
    ----------
    lower, upper : int
    prefix : int
        0 where there is a window or documents.
    ends : int64 array (documents,), on the host, or None
        Where each document ends; None: all is one document.
    """

    lower: int
    upper: int
    prefix: int = 0
    ends: np.ndarray | None = None

    def of(self, query: np.ndarray, keys: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where the keys of queries (int64) start and stop, of 0..keys."""
        start, stop = query - self.lower, query + (self.upper + 1)
        if self.ends is not None:
            document = np.searchsorted(self.ends, query, side="right")
            begins = np.concatenate([np.zeros(1, np.int64), self.ends])
            start = np.maximum(start, begins[document])
            stop = np.minimum(stop, begins[document + 1])
        stop = np.maximum(stop, self.prefix)
        # Quicker than np.clip for a few thousand queries. `stop` is never negative.
        return np.minimum(np.maximum(start, 0), keys), np.minimum(stop, keys)
