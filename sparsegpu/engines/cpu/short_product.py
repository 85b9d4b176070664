"""BSR @ dense that is shorter than planning it: what the pattern and the dtype decide, done before.

Of one matrix, by one thread, in one tile, and without an epilogue; `addmm` has the others.
"""

from __future__ import annotations

import math

import numpy as np

from ...pattern import Pattern
from . import _threads
from ._jit import frozen
from ._kernels import multiply, multiply_narrow
from ._operands import (
    NO_TERMS,
    compute_dtype,
    is_wide,
    parts,
    real_blocks,
    real_columns,
    real_rows,
)
from ._small_blocks import small_loop
from .addmm import ACCUMULATOR, COLUMNS, is_narrow


def most_columns(pattern: Pattern, dtype: np.dtype, transposed: bool = False) -> int:
    """Return of how many columns a product is short: 0 where values are to be widened.

    Of a transpose it is one column: others want blocks that are transposed first.
    """
    if not is_wide(dtype):
        return 0
    m, k = pattern.shape
    height = k if transposed else m
    work = pattern.nnzb * math.prod(pattern.blocksize)
    most = min(ACCUMULATOR // max(height, 1), (_threads.WORTH_A_THREAD - 1) // max(work, 1))
    return min(most, 1 if transposed else COLUMNS)


class ShortProduct:
    """``out = bsr @ dense``, or ``bsr.T @ dense``, with the bits of `addmm.bsr_addmm`.

    Parameters
    ----------
    pattern : Pattern
        Without a batch.
    dtype : dtype
        Of all operands.
    transposed : bool
    """

    __slots__ = ("_blocksize", "_dtype", "_first_rows", "_terms", "_transposed")

    def __init__(self, pattern: Pattern, dtype: np.dtype, transposed: bool = False):
        listed = NO_TERMS
        if transposed:  # the blocks are read as they are
            pattern, order = pattern.transposed()
            listed = frozen(order)
        ends = frozen(pattern._indptr.astype(np.int64))
        self._terms = ends[:-1], ends[1:], listed, frozen(pattern._indices)
        self._blocksize, self._dtype, self._transposed = pattern.blocksize, dtype, transposed
        self._first_rows = np.arange(pattern.block_shape[0]) * pattern.blocksize[0]

    def __call__(self, out: np.ndarray, data: np.ndarray, dense: np.ndarray) -> None:
        """Write the product (M, N) of blocks, contiguous as it is, and (K, N)."""
        (bm, bk), n, dtype = self._blocksize, out.shape[1], self._dtype
        out.fill(0)
        flat = out.reshape(-1)
        small = small_loop(n, bm, bk, dtype, self._transposed)
        if small is not None:
            operands = frozen(data), self._transposed, frozen(dense.reshape(-1))
            small(flat, n, *self._terms, *operands, n, n)
            return
        real = parts(dtype)
        narrow, width = is_narrow(n * real, bk * real), n * real
        rows, ld = (real_columns if narrow else real_rows)(dense)
        (multiply_narrow if narrow else multiply)(
            flat.view(compute_dtype(dtype)),
            frozen(self._first_rows * width),
            width,
            *self._terms,
            real * bk * (1 if narrow else ld),
            0,
            ld,
            real_blocks(data),
            rows,
            width,
        )
