"""A strided matrix operand, batches included, as one kernel argument (``common/view.cuh``).

A struct that goes to a kernel by value is its ``bytes``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NoReturn

from ...._checks import bad_value

#: Batch dimensions that a view carries (dimensions of size 1 do not count).
MAX_BATCH_DIMS = 4

_LARGEST_DIM = 2**31 - 1

_VIEW = struct.Struct("<Q6q")
_BATCH = struct.Struct("<4i")
_ABSENT = _VIEW.pack(0, 0, 0, 0, 0, 0, 0)


def matrix_view(array: Any, batch_shape: tuple[int, ...]) -> bytes:
    """Return the kernel argument ``View`` of a matrix operand.

    Parameters
    ----------
    array : array (*batch, rows, columns), or None
        Any strides. Its batch shape broadcasts to ``batch_shape``, as do its rows and columns to
        the matrix: dimensions of size 1 (and missing ones) get stride 0. None gives a null
        pointer.
    batch_shape : tuple of int
        The batch shape of the result, which `batch_dims` describes to the kernel.

    Raises
    ------
    NotImplementedError
        When ``batch_shape`` has more than four dimensions that are not 1.
    ValueError
        When the address or a stride is no multiple of the item size.
    """
    if array is None:
        return _ABSENT
    shape, strides, itemsize = array.shape, array.strides, array.itemsize
    ndim = len(shape)
    row = strides[-2] if ndim > 1 and shape[-2] != 1 else 0
    col = strides[-1] if ndim > 0 and shape[-1] != 1 else 0
    batch = _batch_strides(shape[:-2], strides[:-2], batch_shape) if batch_shape else _NO_BATCH
    return _pack(array, itemsize, row, col, batch)


def vector_view(array: Any, batch_shape: tuple[int, ...]) -> bytes:
    """Return the ``View`` of vectors (*batch, length), whose ``row`` is the element stride."""
    if array is None:
        return _ABSENT
    shape, strides, itemsize = array.shape, array.strides, array.itemsize
    row = strides[-1] if shape[-1] != 1 else 0
    batch = _batch_strides(shape[:-1], strides[:-1], batch_shape) if batch_shape else _NO_BATCH
    return _pack(array, itemsize, row, 0, batch)


def matrix_numbers(
    shape: tuple[int, ...], strides: tuple[int, ...], step: int, batch_shape: tuple[int, ...]
) -> bytes:
    """Return a ``View`` whose batch strides count matrices, which are ``step`` bytes apart.

    ``shape`` and ``strides`` are an operand's batch dimensions. With a step of 0 it has one matrix.
    """
    along = _batch_strides(shape, strides, batch_shape) if batch_shape else _NO_BATCH
    return _VIEW.pack(0, 0, 0, *(s // step if step else 0 for s in along))


def merged_batch(batch_shape: tuple[int, ...], *operands: tuple[Any, int]) -> tuple[int, ...]:
    """Return the batch shape for the views of one launch, merged where there are too many.

    Neighbouring dimensions become one where in every operand one stride leads through both, or
    none does (it broadcasts): C-contiguous operands may have any number of dimensions.

    Parameters
    ----------
    batch_shape : tuple of int
        Of the result.
    *operands : (array or None, int)
        Every operand whose view has a batch, and how many dimensions stand behind its batch.

    Returns
    -------
    tuple of int
        As long as ``batch_shape``: the innermost of the dimensions that became one has the size
        of all of them, the others have 1 and do not count any more.

    Examples
    --------
    >>> import numpy as np
    >>> result, other = np.empty((2, 3, 4, 5, 6, 16, 16)), np.empty((4, 5, 6, 16))
    >>> merged_batch((2, 3, 4, 5, 6), (result, 2), (other, 1))
    (1, 6, 1, 1, 120)
    """
    if len(batch_shape) <= MAX_BATCH_DIMS:
        return batch_shape
    strides = [
        _strides_along(a.shape[:-behind], a.strides[:-behind], batch_shape)
        for a, behind in operands
        if a is not None
    ]
    merged = list(batch_shape)
    inner = len(merged) - 1
    for d in range(inner - 1, -1, -1):
        size = merged[d] * merged[inner]
        if size <= _LARGEST_DIM and all(s[d] == s[inner] * merged[inner] for s in strides):
            merged[d], merged[inner] = 1, size
        elif merged[d] != 1:
            inner = d
    return tuple(merged)


@lru_cache(maxsize=256)
def batch_dims(batch_shape: tuple[int, ...]) -> bytes:
    """Return the kernel argument ``Batch``: the batch shape, padded in front with ones."""
    kept = tuple(n for n in batch_shape if n != 1)
    _check_batch(batch_shape, len(kept))
    return _BATCH.pack(*(1,) * (MAX_BATCH_DIMS - len(kept)), *kept)


_NO_BATCH = (0,) * MAX_BATCH_DIMS


def _batch_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], batch_shape: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the byte strides of the dimensions of ``batch_shape`` that are not 1."""
    if shape == batch_shape and 1 not in shape:
        kept = strides
    else:
        along = _strides_along(shape, strides, batch_shape)
        kept = tuple(s for s, n in zip(along, batch_shape) if n != 1)
    _check_batch(batch_shape, len(kept))
    return (0,) * (MAX_BATCH_DIMS - len(kept)) + kept


def _strides_along(
    shape: tuple[int, ...], strides: tuple[int, ...], batch_shape: tuple[int, ...]
) -> list[int]:
    """Return the byte strides along the dimensions of ``batch_shape``, 0 where it broadcasts."""
    missing = len(batch_shape) - len(shape)
    return [0] * missing + [0 if n == 1 else s for n, s in zip(shape, strides)]


def _check_batch(batch_shape: tuple[int, ...], kept: int) -> None:
    if kept > MAX_BATCH_DIMS:
        raise NotImplementedError(
            f"the cuda engine: batch shape {batch_shape} has {kept} dimensions larger than 1; "
            f"supported: up to {MAX_BATCH_DIMS}; reshape the operands to fewer"
        )


def _pack(array: Any, itemsize: int, row: int, col: int, batch: tuple[int, ...]) -> bytes:
    b0, b1, b2, b3 = batch
    pointer = array.data.ptr
    # Item sizes are powers of two.
    if (pointer | row | col | b0 | b1 | b2 | b3) & (itemsize - 1):
        _refuse(array, pointer, itemsize)
    shift = itemsize.bit_length() - 1
    if batch is _NO_BATCH:  # the ordinary case, and this is a part of every call's host time
        return _VIEW.pack(pointer, row >> shift, col >> shift, 0, 0, 0, 0)
    return _VIEW.pack(
        pointer,
        row >> shift,
        col >> shift,
        b0 >> shift,
        b1 >> shift,
        b2 >> shift,
        b3 >> shift,
    )


def _refuse(array: Any, pointer: int, itemsize: int) -> NoReturn:
    """Refuse elements that no load can read: it would end all work on the device."""
    if pointer % itemsize:
        expected = f"a multiple of the item size {itemsize}"
        raise bad_value("the cuda engine", "address", expected, hex(pointer))
    expected = f"strides that are multiples of the item size {itemsize}"
    raise bad_value("the cuda engine", "strides", expected, tuple(array.strides))
