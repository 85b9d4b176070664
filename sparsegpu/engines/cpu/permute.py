"""The order of columns in which 2:4 pruning keeps most: compiled loops over pairs of stripes."""

from __future__ import annotations

import numpy as np

from .._permutation_search import Regrouping
from ._jit import frozen, jit
from ._split_totals import add_kept
from ._threads import for_each
from .compress import row_slices

#: Rows at a time: what they keep fits int32 (`LARGEST_KEY`).
_ROWS = 128
#: What a row of a pair of stripes costs in multiply-adds (`for_each`).
_COST = 30


def best_splits(
    gains: np.ndarray,
    best: np.ndarray,
    keys: np.ndarray,
    stripes: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
) -> None:
    """Try all splits of two stripes' columns: see `reference.permute.best_splits`."""
    columns = np.concatenate((stripes[left], stripes[right]), axis=1)
    keys, cost = frozen(keys), _COST * len(left) * keys.shape[1]

    def part(place: slice) -> None:
        some = gains[place], best[place], keys, frozen(columns[place])
        if columns.shape[1] == 8:
            best_of_fours(*some, _ROWS)
        else:
            best_of_pairs(*some)

    for_each(part, row_slices(len(left), cost), cost)


permute = Regrouping(best_splits).permute


@jit()
def best_of_fours(gains, best, keys, columns, run):
    """Write the largest gain and its split for each pair of stripes: eight ``columns`` each."""
    totals = np.empty(35, np.int64)
    for i in range(len(columns)):
        totals[:] = 0
        for start in range(0, keys.shape[1], run):
            add_kept(totals, keys, columns[i], start, min(start + run, keys.shape[1]))
        best[i] = totals.argmax()
        gains[i] = totals[best[i]] - totals[0]


@jit()
def best_of_pairs(gains, best, keys, columns):
    """Write the largest gain and its split for each pair of stripes: four ``columns`` each."""
    for i in range(len(columns)):
        a, b, c, d = columns[i]
        as_they_are = crossed = parallel = 0
        for r in range(keys.shape[1]):
            p, q, x, y = keys[a, r], keys[b, r], keys[c, r], keys[d, r]
            as_they_are += max(p, q) + max(x, y)
            crossed += max(p, x) + max(q, y)
            parallel += max(p, y) + max(q, x)
        most = max(as_they_are, crossed, parallel)
        best[i] = 0 if most == as_they_are else 1 if most == crossed else 2
        gains[i] = most - as_they_are
