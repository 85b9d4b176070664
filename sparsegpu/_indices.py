"""What the index arrays of a block pattern have to be, and what they say."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ._arrays import check_range, namespace
from ._checks import bad_type, bad_value


def check_metadata(
    function: str, indptr: Any, indices: Any, shape: tuple[int, int], blocksize: tuple[int, int]
) -> None:
    """Refuse arrays whose shapes or dtypes do not fit a matrix in blocks."""
    (m, k), (bm, bk) = shape, blocksize
    if m % bm or k % bk:
        raise bad_value(function, "shape", f"multiples of the blocksize {(bm, bk)}", (m, k))
    for name, array in (("indptr", indptr), ("indices", indices)):
        if array.dtype.kind not in "iu":
            raise bad_type(function, name, "an integer dtype", array.dtype)
        if array.ndim < 1:
            raise bad_value(function, name, "at least one dimension", "a scalar")
    expected = (*indices.shape[:-1], m // bm + 1)
    if tuple(indptr.shape) != expected:
        raise bad_value(function, "indptr", f"shape {expected}", tuple(indptr.shape))


def check_contents(function: str, indptr: Any, indices: Any, nnzb: int, columns: int) -> None:
    """Refuse indices that do not describe ``nnzb`` blocks in so many block columns."""
    if indptr.size:
        first, last = indptr[..., 0], indptr[..., -1]
        if bool((first != 0).any()):
            raise bad_value(function, "indptr", "a first element of 0", int(first.max()))
        if bool((last != nnzb).any()):
            wrong = int(last[last != nnzb].ravel()[0])
            raise bad_value(function, "indptr", f"a last element of nnzb = {nnzb}", wrong)
        if bool((indptr[..., 1:] < indptr[..., :-1]).any()):
            raise bad_value(function, "indptr", "non-decreasing values", "a decrease")
    check_range(function, "indices", indices, columns, f"block columns in 0..{columns - 1}")


def ascend(indptr: Any, indices: Any) -> tuple[bool, bool]:
    """Return whether columns ascend in every row, and whether they do so strictly."""
    xp, (*batch, n) = namespace(indices), indices.shape
    count = prod(batch)
    if batch:
        matrix = xp.arange(count, dtype=np.int64)[:, None]
        indptr = indptr.reshape(count, indptr.shape[-1]) + matrix * (n + 1)
    follows = xp.ones(count * (n + 1), dtype=bool)  # a block of the same row
    follows[indptr] = False
    follows = follows.reshape(count, n + 1)[:, 1:-1]
    columns = indices.reshape(count, n)
    before, after = columns[:, :-1], columns[:, 1:]
    if not bool(((before >= after) & follows).any()):  # as usual: one look, if on a device
        return True, True
    return not bool(((before > after) & follows).any()), False


def keys_per_batch(
    keys: Any, batch_shape: tuple[int, ...], blocks: int, function: str, argument: str
) -> int:
    """Return how many of the sorted ``keys`` fall to each matrix of ``blocks`` positions.

    Raises
    ------
    ValueError
        When they differ: a batch keeps the same number of blocks everywhere.
    """
    batch_size = prod(batch_shape)
    if batch_size <= 1:
        return int(keys.size)
    xp = namespace(keys)
    edges = xp.searchsorted(keys, xp.arange(batch_size + 1, dtype=np.int64) * blocks)
    counts = xp.diff(edges)
    low, high = int(counts.min()), int(counts.max())
    if low != high:
        expected = "the same number of stored blocks in every batch of the result"
        raise bad_value(function, argument, expected, f"between {low} and {high}")
    return low
