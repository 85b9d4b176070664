"""Whether columns ascend within the rows of a pattern, by one launch (``bsr_column_order.cu``)."""

from __future__ import annotations

import numpy as np

from ..._math import ceil_div
from ...pattern import Pattern
from ._grid import THREADS, grid
from ._host_numbers import HostNumbers
from .runtime.launch import Launch, kernel, submit
from .runtime.types import ctype


def column_order(pattern: Pattern) -> tuple[bool, bool]:
    """Return whether columns ascend in every row, and whether they do so strictly.

    What `Pattern.has_sorted_indices` and `Pattern.has_canonical_format` say, and kept as that is.
    The host waits for it once a pattern.
    """
    return pattern.memo("order", lambda: _seen(pattern))


def _seen(pattern: Pattern) -> tuple[bool, bool]:
    matrices, rows = pattern.batch_size, pattern.block_shape[0]
    if not pattern._indices.size:
        return True, True
    facts = HostNumbers()
    launch = Launch(
        kernel("bsr_column_order", INDEX=ctype(pattern._indices.dtype)),
        grid(ceil_div(matrices * rows, THREADS // 32)),  # a warp a row
        (THREADS,),
        (
            facts.pointer,
            pattern._indptr,
            pattern._indices,
            np.int64(matrices),
            np.int64(rows),
            np.int64(pattern.nnzb),
        ),
    )
    submit(facts, launch, setup=True)
    falls, repeats, *_ = facts.wait()
    return not falls, not (falls or repeats)
