"""Operands as the loops take them: real, float32 or float64, flat with a leading dimension.

16-bit floats and int8 are widened a part at a time. Complex products become real ones: a block is
read as it is in memory, (re, im) pairs along its rows, and each row of the dense operand becomes
the two rows that these are multiplied by::

    (a_re + i a_im) * (b_re + i b_im) = a_re * (b_re, b_im) + a_im * (-b_im, b_re)
"""

from __future__ import annotations

import numpy as np

from ..._arrays import bfloat16
from ._jit import frozen

NO_TERMS = frozen(np.empty(0, np.int64))


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype the loops read: float64 for the 64-bit kinds, else float32."""
    return np.dtype(np.float64 if dtype in (np.float64, np.complex128) else np.float32)


def parts(dtype: np.dtype) -> int:
    """Return how many real numbers make up an element."""
    return 2 if dtype.kind == "c" else 1


def is_wide(dtype: np.dtype) -> bool:
    """Return whether the loops read a dtype as it is: `widen` copies no contiguous array of it."""
    return dtype.kind == "c" or dtype == compute_dtype(dtype)


def widen(array: np.ndarray) -> np.ndarray:
    """Return a C-contiguous array of the compute dtype (complex stays complex)."""
    if array.dtype == bfloat16:  # the upper half of a float32
        wide = array.view(np.uint16).astype(np.uint32, order="C")
        wide <<= 16
        return wide.view(np.float32)
    if array.dtype.kind == "c":
        return np.ascontiguousarray(array)
    return np.ascontiguousarray(array.astype(compute_dtype(array.dtype), order="C", copy=False))


def real_blocks(blocks: np.ndarray) -> np.ndarray:
    """Return blocks (n, bm, bk) for the loops; complex: (n, bm, 2 * bk)."""
    return frozen(widen(blocks).view(compute_dtype(blocks.dtype)))


def real_rows(dense: np.ndarray) -> tuple[np.ndarray, int]:
    """Return ``(flat, ld)``: the rows of a (K, N) operand, ``ld`` apart; complex: (2K, 2N).

    Not copied when rows are contiguous and nothing has to be widened.
    """
    if dense.dtype.kind != "c":
        return own_rows(dense)
    wide = _both_rows(widen(dense))
    return frozen(wide.reshape(-1)), wide.shape[-1]


def own_rows(dense: np.ndarray) -> tuple[np.ndarray, int]:
    """Return `real_rows`, but of complex numbers as they are."""
    k, n = dense.shape
    size = dense.itemsize
    row = dense.strides[0] if k > 1 else n * size
    fits = (n == 1 or dense.strides[1] == size) and row >= 0 and row % size == 0
    if fits and is_wide(dense.dtype):
        ld = row // size
        return frozen(_strip(dense, (k - 1) * ld + n)), ld
    return frozen(widen(dense).reshape(-1)), n


def real_columns(dense: np.ndarray) -> tuple[np.ndarray, int]:
    """Return ``(flat, ld)``: the columns of a (K, N) operand, each contiguous; see `real_rows`."""
    columns = dense.swapaxes(-1, -2)
    if dense.dtype.kind != "c":
        return real_rows(columns)
    wide = widen(columns)
    pairs = np.empty((wide.shape[0], 2, wide.shape[1], 2), compute_dtype(dense.dtype))
    pairs[:, 0, :, 0], pairs[:, 0, :, 1] = wide.real, -wide.imag
    pairs[:, 1, :, 0], pairs[:, 1, :, 1] = wide.imag, wide.real
    return frozen(pairs.reshape(-1)), 2 * wide.shape[1]


def _both_rows(dense: np.ndarray) -> np.ndarray:
    k, n = dense.shape
    pairs = np.empty((k, 2, n, 2), compute_dtype(dense.dtype))
    pairs[:, 0, :, 0], pairs[:, 0, :, 1] = dense.real, dense.imag
    pairs[:, 1, :, 0], pairs[:, 1, :, 1] = -dense.imag, dense.real
    return pairs.reshape(2 * k, 2 * n)


def real_accumulator(acc: np.ndarray) -> np.ndarray:
    """Return a C-contiguous accumulator flat, a complex one as its (re, im) pairs."""
    flat = acc.reshape(-1)
    return flat.view(compute_dtype(acc.dtype)) if acc.dtype.kind == "c" else flat


def real_strip(acc: np.ndarray) -> tuple[np.ndarray, int]:
    """Return ``(flat, ld)`` of a 2-D accumulator whose rows are contiguous."""
    flat, ld = own_strip(acc)
    real = compute_dtype(acc.dtype) if acc.dtype.kind == "c" else acc.dtype
    return flat.view(real), ld * parts(acc.dtype)


def own_strip(acc: np.ndarray) -> tuple[np.ndarray, int]:
    """Return `real_strip`, but of complex numbers as they are."""
    ld = acc.strides[0] // acc.itemsize if len(acc) > 1 else acc.shape[1]
    return _strip(acc, (len(acc) - 1) * ld + acc.shape[1]), ld


def _strip(array: np.ndarray, length: int) -> np.ndarray:
    """Return a matrix, with the gaps between its rows, as one flat view."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    return np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,))


def real_pairs(dense: np.ndarray) -> tuple[np.ndarray, int]:
    """Return ``(flat, ld)``: the rows of a matrix as in memory; complex: (M, 2K)."""
    if dense.dtype.kind != "c":
        return real_rows(dense)
    wide = np.ascontiguousarray(dense)
    return frozen(wide.reshape(-1).view(compute_dtype(dense.dtype))), 2 * dense.shape[1]
