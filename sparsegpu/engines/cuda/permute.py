"""The order of columns in which 2:4 pruning keeps most, on the device: a warp takes a pair.

The search itself (`_permutation_search`) is CuPy's array code over the table of pairs of stripes.
The host reads a few numbers a round: how many pairs there are to try and to regroup, and how much
is kept in all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._math import ceil_div
from .._permutation_search import Regrouping
from .runtime.launch import Launch, kernel, submit

_THREADS = 128


def best_splits(gains: Any, best: Any, keys: Any, stripes: Any, left: Any, right: Any) -> None:
    """Write the best split of each pair's columns and its gain; all are C-contiguous.

    ``keys`` is int32, the others int64.
    """
    count = len(left)
    launch = Launch(
        kernel("permute_24", GROUP=stripes.shape[1]),
        (ceil_div(count, _THREADS // 32),),
        (_THREADS,),
        (gains, best, keys, stripes, left, right, np.int64(count), np.int64(keys.shape[1])),
    )
    submit(launch)


permute = Regrouping(best_splits).permute
