"""The lower and the upper triangle of a block-sparse matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import bad_value, check_integer
from ..ops._common import check_sparse, on_device
from ..pattern import Pattern
from .array import bsr_array


def tril(A: bsr_array, k: int = 0) -> bsr_array:
    """Return what is on and below a diagonal.

    Parameters
    ----------
    A : bsr_array (M, K)
    k : int
        The diagonal, above the main one where positive.

    Returns
    -------
    bsr_array (M, K)
        Without the blocks that are above the diagonal altogether.

    Raises
    ------
    ValueError
        For a batch.
    TypeError
        For what is no `bsr_array`, and a ``k`` that is no integer.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> sparsegpu.tril(sparsegpu.bsr_array(np.ones((4, 4)), blocksize=(2, 2)))
    <sparsegpu.bsr_array, shape (4, 4), float64, 3 blocks of 2x2 stored (density 0.75), on cpu>
    """
    return _triangle("tril", A, k, 1)


def triu(A: bsr_array, k: int = 0) -> bsr_array:
    """Return what is on and above a diagonal: see `tril`.

    Parameters
    ----------
    A : bsr_array (M, K)
    k : int
        The diagonal, above the main one where positive.

    Returns
    -------
    bsr_array (M, K)

    Raises
    ------
    ValueError, TypeError
        As `tril`.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.ones((4, 4)), blocksize=(2, 2))
    >>> sparsegpu.triu(A, k=1).toarray()[0]
    array([0., 1., 1., 1.])
    """
    return _triangle("triu", A, k, -1)


def _triangle(function: str, A: bsr_array, k: Any, sign: int) -> bsr_array:
    """Keep what ``sign * (column - row) <= sign * k`` holds for."""
    check_sparse(function, "A", A)
    if A.pattern.batch_shape:
        raise bad_value(function, "A", "one matrix (2-D)", f"a batch, shape {A.shape}")
    k = check_integer(function, "k", k, "an integer")
    pattern, xp, ((m, n), (bm, bk)) = A.pattern, A.pattern.xp, (A.pattern.shape, A.blocksize)
    k = max(-m, min(k, n))  # int64 holds it
    with on_device(A.data):
        # How far above the diagonal each block begins, and each element of a block.
        start = pattern._indices.astype(np.int64) * bk - pattern._rows.astype(np.int64) * bm
        within = xp.arange(bk, dtype=np.int64) - xp.arange(bm, dtype=np.int64)[:, None]
        above, low, high = sign * (start - k), 1 - bm, bk - 1  # of `within`
        nearest, farthest = (low, high) if sign > 0 else (-high, -low)
        stored = xp.flatnonzero(above + nearest <= 0)
        data, above = A.data[stored], above[stored]
        cut = xp.flatnonzero(above + farthest > 0)
        kept = above[cut][:, None, None] + sign * within <= 0
        data[cut] = xp.where(kept, data[cut], xp.zeros((), data.dtype))
        starts = xp.searchsorted(stored, pattern._indptr.astype(stored.dtype))
        part = Pattern(starts, pattern._indices[stored], (m, n), (bm, bk), check=False)
        return bsr_array._of(part, data)
