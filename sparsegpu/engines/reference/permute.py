"""The order of columns in which 2:4 pruning keeps most: the gain of splitting two stripes."""

from __future__ import annotations

import numpy as np

from .._permutation_search import Regrouping, kept, splits

#: Elements that an intermediate array holds, about.
_CHUNK = 1 << 20


def best_splits(
    gains: np.ndarray,
    best: np.ndarray,
    keys: np.ndarray,
    stripes: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
) -> None:
    """Try every split of the columns of stripes ``left[i]`` and ``right[i]`` into two.

    ``keys`` is (columns, rows), int32; ``stripes`` (stripes, group) holds column numbers. Writes
    the largest gain over leaving them, and its split (the first of equals).
    """
    group, table = stripes.shape[1], splits(stripes.shape[1])
    step = max(1, _CHUNK // (2 * group * keys.shape[1]))
    for start in range(0, len(left), step):
        part = slice(start, start + step)
        columns = np.concatenate((stripes[left[part]], stripes[right[part]]), axis=1)
        values = keys[columns]
        sums = np.stack(
            [kept(values[:, s[:group]], np) + kept(values[:, s[group:]], np) for s in table]
        )
        best[part] = sums.argmax(axis=0)
        gains[part] = sums.max(axis=0) - sums[0]


permute = Regrouping(best_splits).permute
