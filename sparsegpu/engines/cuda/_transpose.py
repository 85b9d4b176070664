"""The transpose of a pattern in one launch (``bsr_transpose_pattern.cu``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._math import ceil_div
from ...pattern import Pattern
from ._arena import Arena
from ._grid import grid
from .runtime.launch import Launch, kernel, pointer, submit
from .runtime.types import ctype

#: Indices that all thread blocks read, at most; above that, sorting is faster.
MOST_READS = 1 << 28

_STRIPE = 32  # columns of a thread block
_THREADS = 1024
_INT64 = np.dtype(np.int64)


def transpose_pattern(pattern: Pattern) -> tuple[Pattern, Any]:
    """Do what `Pattern.transposed` does; kept with the pattern as that is.

    Every thread block reads all indices of a matrix. That is one short launch, but the work grows
    with the number of blocks times that of columns: large patterns are sorted, which takes many.
    """
    columns, indices = pattern.block_shape[1], pattern._indices
    if not 0 < ceil_div(columns, _STRIPE) * indices.size <= MOST_READS:
        return pattern.transposed()
    return pattern.memo("transposed", lambda: _transposed(pattern))


def _transposed(pattern: Pattern) -> tuple[Pattern, Any]:
    (m, k), (bm, bk) = pattern.shape, pattern.blocksize
    rows, columns = pattern.block_shape
    index, batch, stripes = pattern._indices.dtype, pattern.batch_size, ceil_div(columns, _STRIPE)
    parts = Arena(
        pattern.xp,
        (batch * (columns + 1), index),
        (pattern._indices.size, index),
        (pattern._indices.size, _INT64),
    )
    launch = Launch(
        kernel("bsr_transpose_pattern", INDEX=ctype(index)),
        grid(batch * stripes),
        (_THREADS,),
        (
            *map(pointer, parts.addresses),
            pattern._indptr,
            pattern._indices,
            np.int64(stripes),
            np.int64(rows),
            np.int64(columns),
            np.int64(pattern.nnzb),
        ),
    )
    submit(launch, setup=True)
    indptr, indices, origin = map(parts.array, range(3))
    outer = pattern.batch_shape
    transposed = Pattern(
        indptr.reshape(*outer, columns + 1),
        indices.reshape(*outer, pattern.nnzb),
        (k, m),
        (bk, bm),
        check=False,
        copy=False,
    )
    return transposed, origin
