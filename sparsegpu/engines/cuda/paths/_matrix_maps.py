"""Tensor maps of whole matrices whose rows are copied in boxes of 128 bytes, batches included."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

from ..runtime.tensor_map import tensor_map
from ..runtime.view import matrix_numbers

#: Bytes of a row that a box has.
LINE_BYTES = 128


def matrices_of(array: Any, trailing: int = 2) -> tuple[int, int] | None:
    """Return how many matrices an array has and their distance in bytes, None without one.

    ``trailing`` dimensions stand behind those of the batch.
    """
    kept = [
        (n, s)
        for n, s in zip(array.shape[:-trailing], array.strides[:-trailing], strict=True)
        if n != 1
    ]
    for (_, outer), (n, inner) in pairwise(kept):
        if outer != n * inner:
            return None
    apart = kept[-1][1] if kept else 0
    return (prod(n for n, _ in kept), apart) if apart else (1, 0)


def described(array: Any) -> bool:
    """Return whether a map describes all matrices of an array whose rows are aligned."""
    matrices = matrices_of(array)
    return matrices is not None and matrices[1] >= 0 and array.strides[-2] > 0


def rows_map(array: Any, rows: int) -> bytes:
    """Return the map of the rows of all matrices of an array, so many rows a box."""
    count, apart = matrices_of(array) or (1, 0)
    n, columns = array.shape[-2:]
    size = array.itemsize
    return tensor_map(
        array,
        (1, rows, LINE_BYTES // size),
        LINE_BYTES,
        shape=(count, n, columns),
        strides=(apart if count > 1 else 16, array.strides[-2], size),
    )


def numbers(array: Any, batch: tuple[int, ...], mapped: Any = None) -> bytes:
    """Return which matrix of `rows_map` a matrix of the batch reads: a ``View``.

    The map is that of ``mapped``, of which ``array`` is a view with its dimensions in another
    order; by default of the array itself.
    """
    count, apart = matrices_of(array if mapped is None else mapped) or (1, 0)
    return matrix_numbers(array.shape[:-2], array.strides[:-2], apart if count > 1 else 0, batch)
