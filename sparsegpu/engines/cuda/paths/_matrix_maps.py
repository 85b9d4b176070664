"""Tensor maps of whole matrices whose rows are copied in boxes of 128 bytes, batches included.

A map has one dimension for the matrices of a batch. Their distances need not be one stride's
multiples in order: the map counts places of the largest step that leads to all of them, of which
most may be no matrix of the batch. So an array (B, L, H, E) that is seen as (B, H, L, E) is
described, too.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from ..runtime.tensor_map import tensor_map
from ..runtime.view import matrix_numbers
from ._tma import INT32

#: Bytes of a row that a box has.
LINE_BYTES = 128


def described(array: Any) -> bool:
    """Return whether a map describes all matrices of an array whose rows are aligned."""
    return min(array.strides[:-1]) >= 0 < array.strides[-2] and places_of(array)[0] < INT32


def places_of(array: Any) -> tuple[int, int]:
    """Return how many places a map of an array's matrices counts, and their distance in bytes.

    Examples
    --------
    Of four heads and two batches, in memory (2, 1024, 4, 64):

    >>> import numpy as np
    >>> places_of(np.zeros((2, 1024, 4, 64), np.float16).swapaxes(1, 2))
    (4100, 128)
    """
    batch = list(zip(array.shape[:-2], array.strides[:-2], strict=True))
    apart = gcd(*(s for n, s in batch if n != 1))
    return (1 + sum((n - 1) * s // apart for n, s in batch), apart) if apart else (1, 0)


def rows_map(array: Any, rows: int, line_bytes: int = LINE_BYTES) -> bytes:
    """Return the map of the rows of all matrices of an array, so many rows and bytes a box."""
    count, apart = places_of(array)
    n, columns = array.shape[-2:]
    size = array.itemsize
    return tensor_map(
        array,
        (1, rows, line_bytes // size),
        line_bytes,
        shape=(count, n, columns),
        # The stride of a single row, or of a single matrix, may be anything.
        strides=(apart if count > 1 else 16, array.strides[-2] if n > 1 else 16, size),
    )


def numbers(array: Any, batch: tuple[int, ...], mapped: Any = None) -> bytes:
    """Return which place of `rows_map` a matrix of the batch reads: a ``View``.

    The map is that of ``mapped``, of which ``array`` is a view with its dimensions in another
    order; by default of the array itself.
    """
    count, apart = places_of(array if mapped is None else mapped)
    return matrix_numbers(array.shape[:-2], array.strides[:-2], apart if count > 1 else 0, batch)
