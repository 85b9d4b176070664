"""The column permutation with which 2:4 pruning keeps most: a warp tries the splits of a pair.

The search itself (`_regroup`) is array code of CuPy's over the table of pairs of stripes. Each
round the host reads a few numbers: how many pairs to try and to regroup, and what is kept in all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._regroup import Regrouping
from .runtime.launch import Launch, kernel, submit

_THREADS = 128


def best_splits(gains: Any, ways: Any, keys: Any, stripes: Any, left: Any, right: Any) -> None:
    """Write the best split of each pair's columns and its gain; all are C-contiguous.

    ``keys`` is int32, the others int64.
    """
    count = len(left)
    launch = Launch(
        kernel("permute_24", GROUP=stripes.shape[1]),
        (-(-count // (_THREADS // 32)),),
        (_THREADS,),
        (gains, ways, keys, stripes, left, right, np.int64(count), np.int64(keys.shape[1])),
    )
    submit(launch)


permute = Regrouping(best_splits).permute
