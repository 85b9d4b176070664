"""Blocks of two patterns added over their union, row by row."""

from __future__ import annotations

import numpy as np

from ..._arrays import index_dtype
from ...pattern import Pattern
from ._jit import frozen, jit
from ._threads import for_each, pieces, spans


def combine(
    left: Pattern, a: np.ndarray, right: Pattern, b: np.ndarray, sign: int, function: str
) -> tuple[Pattern, np.ndarray]:
    """Return the union of two canonical patterns without a batch, and ``a + sign * b`` over it.

    Blocks of one size and one float or complex dtype; ``sign`` is 1 or -1.
    """
    most, rows = left.nnzb + right.nnzb, left.block_shape[0]
    wide = index_dtype(max(most, *left.block_shape))
    indices, starts = np.empty(most, wide), np.empty(rows + 1, wide)
    of_a, of_b = np.empty((2, most), np.int64)
    fields = [frozen(x) for p in (left, right) for x in (p._indptr, p._indices)]
    n = _merge(starts, indices, of_a, of_b, *fields)
    out = np.empty((n, *left.blocksize), a.dtype)
    blocks = [frozen(np.ascontiguousarray(x).reshape(-1)) for x in (a, b)]

    def add(span: tuple[int, int]) -> None:
        taken = slice(*span)
        _add(out[taken], frozen(of_a[taken]), frozen(of_b[taken]), *blocks, sign)

    for_each(add, spans(np.arange(1, n + 1), max(n, 1), pieces(out.size)), out.size)
    shape, blocksize = left.shape, left.blocksize
    return Pattern(starts, indices[:n].copy(), shape, blocksize, check=False, copy=False), out


@jit()
def _merge(starts, indices, of_a, of_b, a_ptr, a_indices, b_ptr, b_indices):
    """Write the union, and which blocks of the two each of its blocks is (-1: none)."""
    n = np.uintp(0)
    for row in range(np.uintp(len(a_ptr) - 1)):
        starts[row] = n
        i, a_end = np.uintp(a_ptr[row]), np.uintp(a_ptr[row + np.uintp(1)])
        j, b_end = np.uintp(b_ptr[row]), np.uintp(b_ptr[row + np.uintp(1)])
        while i < a_end or j < b_end:
            in_a = i < a_end and (j == b_end or a_indices[i] <= b_indices[j])
            in_b = j < b_end and (i == a_end or b_indices[j] <= a_indices[i])
            indices[n] = a_indices[i] if in_a else b_indices[j]
            of_a[n] = np.int64(i) if in_a else -1
            of_b[n] = np.int64(j) if in_b else -1
            i += np.uintp(in_a)
            j += np.uintp(in_b)
            n += np.uintp(1)
    starts[len(a_ptr) - 1] = n
    return n


@jit()
def _add(out, of_a, of_b, a, b, sign):
    size, total = np.uintp(out.shape[1] * out.shape[2]), out.reshape(-1)
    for t in range(np.uintp(len(of_a))):
        o, x, y = t * size, np.uintp(of_a[t]) * size, np.uintp(of_b[t]) * size
        if of_b[t] < 0:
            for i in range(size):
                total[o + i] = a[x + i]
        elif of_a[t] < 0 and sign > 0:
            for i in range(size):
                total[o + i] = b[y + i]
        elif of_a[t] < 0:
            for i in range(size):
                total[o + i] = -b[y + i]
        elif sign > 0:
            for i in range(size):
                total[o + i] = a[x + i] + b[y + i]
        else:
            for i in range(size):
                total[o + i] = a[x + i] - b[y + i]
