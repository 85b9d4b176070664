"""Arrays of equal values wherever they lie in memory, for emulated kernels."""

from __future__ import annotations

import numpy as np


def _in(memory, array):
    memory[...] = array
    return memory


def _apart(array, more, first=0):
    """Return a copy in columns ``first`` and following of rows with ``more`` of them."""
    *batch, n = array.shape
    whole = np.full((*batch, n + more), 99 if array.dtype.kind in "ib" else np.nan)
    return _in(whole.astype(array.dtype)[..., first : first + n], array)


#: What has equal values along some dimensions, with strides of 0 there.
BROADCAST = {
    "one row": lambda a: np.broadcast_to(a[..., :1, :], a.shape),
    "one column": lambda a: np.broadcast_to(a[..., :1], a.shape),
    "one matrix": lambda a: np.broadcast_to(a[..., :1, :, :], a.shape),
    "one number": lambda a: np.broadcast_to(a[..., :1, :1, :1], a.shape),
}

#: Copies of (*batch, rows, columns) in other places.
ELSEWHERE = {
    "columns": lambda a: np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2),
    "rows in reverse": lambda a: _in(np.empty_like(a)[..., ::-1, :], a),
    "columns in reverse": lambda a: _in(np.empty_like(a)[..., ::-1], a),
    "matrices in reverse": lambda a: _in(np.empty_like(a)[..., ::-1, :, :], a),
    "every other row": lambda a: _in(np.repeat(a, 2, axis=-2)[..., ::2, :], a),
    "aligned": lambda a: _apart(a, -a.shape[-1] % 16 + 16),
    "off by an element": lambda a: _apart(a, -a.shape[-1] % 16 + 16, first=1),
    "skewed": lambda a: _apart(a, 1, first=1),
}
