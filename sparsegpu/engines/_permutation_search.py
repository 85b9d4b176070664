"""The search for a permutation of columns, over an engine's own evaluation of stripes.

A *stripe* is a group of columns that 2:4 (or 1:2) prunes together. Only
`best_splits`, each engine's own, reads the matrix; the rest is array code over the table of pairs
of stripes, in the array library of the keys.

Keys are int32 integers and their sums int64. So sums are exact in any order, and all engines find
the same permutation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations, count
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .._arrays import namespace, read_only

#: No key is larger: int32 then holds what 128 rows keep of two stripes.
LARGEST_KEY = (1 << 22) - 1


@cache
def splits(group: int) -> np.ndarray:
    """Return all splits of two stripes' columns into two: (35, 8), for groups of two (3, 4).

    A split lists the positions of the first stripe, then those of the second. Position 0 stays in
    the first one, as the order of the two does not matter. Splits are in the order of their first
    stripes read as bits, so that split 0 changes nothing.
    """
    every = range(2 * group)
    chosen = [(0, *rest) for rest in combinations(every[1:], group - 1)]
    chosen.sort(key=lambda first: sum(1 << n for n in first))
    table = [(*first, *(n for n in every if n not in first)) for first in chosen]
    return read_only(np.array(table, np.int64))


def kept(columns: Any, xp: ModuleType) -> Any:
    """Return the sum that pruning keeps of each stripe: (stripes, group, rows) to (stripes,)."""
    a, b = columns[:, 0], columns[:, 1]
    best = xp.maximum(a, b)
    if columns.shape[1] == 4:
        c, d = columns[:, 2], columns[:, 3]
        # The two largest of four: one of each pair, or both of one.
        best = xp.maximum(best + xp.maximum(c, d), xp.maximum(a + b, c + d))
    return best.sum(axis=-1, dtype=np.int64)


#: Stripes that an escape shuffles: any two have their best split already.
_SHUFFLED = 3


class Regrouping(NamedTuple):
    """An engine's `permute`, made of its own `best_splits`.

    Attributes
    ----------
    best_splits : callable
        ``best_splits(gains, best, keys, stripes, left, right)`` writes for each pair of stripes,
        ``left[i] < right[i]``, by how much its best split (`splits`; the first of equals) raises
        what the two keep, and which it is.
    """

    best_splits: Callable

    def permute(
        self,
        out: Any,
        keys: Any,
        group: int,
        escapes: int,
        seed: int,
        said: Callable[[str], object],
    ) -> None:
        """Write the order of columns found: int64, as long as ``keys`` (columns, rows).

        ``keys`` is C-contiguous int32, at most `LARGEST_KEY` in size. When no pair of stripes
        can be improved, three stripes drawn at random are shuffled and the search continues (a
        shuffle of two would be undone). ``escapes`` is how often; a worse result is discarded.
        ``said`` is told of every round where the search is.
        """
        xp, rng = namespace(keys), np.random.default_rng(seed)
        stripes = xp.arange(len(keys), dtype=np.int64).reshape(-1, group)
        table = _Pairs(self.best_splits, keys, stripes)
        table.climb(said)
        best, total = table.copy(), int(kept(keys[table.stripes], xp).sum())
        for escape in range(escapes if len(stripes) >= _SHUFFLED else 0):
            table.shuffle(
                xp.asarray(rng.choice(len(stripes), _SHUFFLED, replace=False)),
                xp.asarray(rng.permutation(_SHUFFLED * group)),
            )
            table.climb(said, f"escape {escape + 1} of {escapes}, ")
            reached = int(kept(keys[table.stripes], xp).sum())
            if reached > total:
                best, total = table.copy(), reached
            else:
                table = best.copy()
        out[...] = best.stripes.reshape(-1)


class _Pairs:
    """Stripes, and what another split of each pair of them would gain."""

    def __init__(self, best_splits: Callable, keys: Any, stripes: Any):
        xp, n = namespace(keys), len(stripes)
        self.best_splits, self.keys, self.stripes = best_splits, keys, stripes
        self.splits = xp.asarray(splits(stripes.shape[1]))
        self.gains = xp.zeros((n, n), dtype=np.int64)  # symmetric; zero on the diagonal
        self.best = xp.zeros((n, n), dtype=np.int64)
        self.stale = xp.ones(n, dtype=bool)

    def copy(self) -> _Pairs:
        """Return a copy of the state; the keys are shared."""
        other = object.__new__(_Pairs)
        other.__dict__.update(self.__dict__)
        for name in ("stripes", "gains", "best", "stale"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def shuffle(self, stripes: Any, order: Any) -> None:
        """Put the columns of some stripes into another order, even if that keeps less."""
        columns = self.stripes[stripes]
        self.stripes[stripes] = columns.ravel()[order].reshape(columns.shape)
        self.stale[stripes] = True

    def climb(self, said: Callable[[str], object], where: str = "") -> None:
        """Split the pairs that gain most, until none gains. Each round increases the total."""
        for number in count(1):
            said(f"{where}round {number}")
            self._evaluate()
            chosen = self._disjoint()
            if not len(chosen[0]):
                return
            self._apply(*chosen)

    def _evaluate(self) -> None:
        xp = namespace(self.keys)
        wanted = xp.triu(self.stale[:, None] | self.stale[None, :], 1)
        left, right = (xp.ascontiguousarray(side) for side in xp.nonzero(wanted))
        self.stale[...] = False
        if not len(left):
            return
        gains = xp.empty(len(left), dtype=np.int64)
        best = xp.empty(len(left), dtype=np.int64)
        self.best_splits(gains, best, self.keys, self.stripes, left, right)
        for table, values in ((self.gains, gains), (self.best, best)):
            table[left, right] = values
            table[right, left] = values

    def _disjoint(self) -> tuple[Any, Any]:
        """Return pairs without a common stripe, greedily by gain.

        A pair is taken when each is the other's best partner (ties: the lower number), until none
        is left: the greedy choice, found many at a time.
        """
        xp = namespace(self.keys)
        gains = self.gains.copy()
        number = xp.arange(len(gains))
        found = []
        while len(gains) > 1:
            partner = gains.argmax(axis=1)
            mutual = (partner[partner] == number) & (number < partner)
            left = xp.nonzero(mutual & (gains[number, partner] > 0))[0]
            if not len(left):
                break
            right = partner[left]
            found.append((left, right))
            for taken in (left, right):
                gains[taken] = 0
                gains[:, taken] = 0
        if not found:
            return number[:0], number[:0]
        left, right = (xp.concatenate(side) for side in zip(*found, strict=True))
        return left, right

    def _apply(self, left: Any, right: Any) -> None:
        xp, group = namespace(self.keys), self.stripes.shape[1]
        columns = xp.concatenate((self.stripes[left], self.stripes[right]), axis=1)
        columns = xp.take_along_axis(columns, self.splits[self.best[left, right]], axis=1)
        self.stripes[left], self.stripes[right] = columns[:, :group], columns[:, group:]
        self.stale[left] = self.stale[right] = True
