"""Masks in which every query attends to one interval of keys, however many blocks that takes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import as_array, index_dtype, is_cupy, namespace
from .._checks import bad_type, bad_value, check_element_count
from .._segments import expand_counts
from ..bsr.array import bsr_array
from ..bsr.block_mask import PARTIAL, BlockMask, words
from ..pattern import Pattern
from ._arguments import UNBOUNDED, check_blocks, check_count, check_options, in_form, sizes


def banded(
    length: Any,
    blocksize: Any,
    lower: int | None,
    upper: int | None = None,
    *,
    compact: bool = False,
    xp: ModuleType = np,
) -> bsr_array | BlockMask:
    """Return the mask of a band of diagonals: ``-lower <= j - i <= upper``.

    Parameters
    ----------
    length, blocksize : int or pair of int
    lower : int or None
        How far a key may lie before the query; None: as far as there are keys.
    upper : int, optional
        How far a key may lie after the query; by default as far as before it.
    compact : bool
        Return a `BlockMask`.
    xp : {numpy, cupy}

    Returns
    -------
    bsr_array (L, S), bool, or BlockMask (L, S)

    Raises
    ------
    ValueError
        A length that the block size does not divide; a negative count or width.
    TypeError
        A length, count or width that is no integer; an ``xp`` that is no array library.

    Examples
    --------
    >>> import sparsegpu
    >>> sparsegpu.banded(4, 2, 1).toarray().astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 1, 0],
           [0, 1, 1, 1],
           [0, 0, 1, 1]])
    """
    upper = lower if upper is None else upper
    return _band("banded", length, blocksize, lower, upper, compact, xp)


def sliding_window(
    length: Any,
    blocksize: Any,
    window: int,
    *,
    causal: bool = False,
    compact: bool = False,
    xp: ModuleType = np,
) -> bsr_array | BlockMask:
    """Return the mask of local attention: keys at most ``window`` away from the query.

    Parameters
    ----------
    length, blocksize : int or pair of int
    window : int
        ``abs(i - j) <= window`` (Longformer's window of w is ``window = w // 2`` here).
    causal : bool
        Only keys up to the query: ``0 <= i - j <= window``.
    compact : bool
        Return a `BlockMask`.
    xp : {numpy, cupy}

    Returns
    -------
    bsr_array (L, S), bool, or BlockMask (L, S)

    Raises
    ------
    ValueError, TypeError
        As `banded`.

    References
    ----------
    Beltagy, Peters, Cohan: Longformer (2020), section 3.1.

    Examples
    --------
    >>> import sparsegpu
    >>> sparsegpu.sliding_window(4, 2, 1, causal=True).toarray().astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    function = "sliding_window"
    check_options(function, xp, causal=causal)
    window = check_count(function, "window", window)  # None is `banded`'s alone
    return _band(function, length, blocksize, window, 0 if causal else window, compact, xp)


def causal(
    length: Any, blocksize: Any, *, compact: bool = False, xp: ModuleType = np
) -> bsr_array | BlockMask:
    """Return the mask of causal attention: key ``j <= i``, aligned at the first query and key.

    Parameters
    ----------
    length, blocksize : int or pair of int
    compact : bool
        Return a `BlockMask`.
    xp : {numpy, cupy}

    Returns
    -------
    bsr_array (L, S), bool, or BlockMask (L, S)

    Raises
    ------
    ValueError, TypeError
        As `banded`.

    Examples
    --------
    >>> import sparsegpu
    >>> sparsegpu.causal(4, 2).toarray().astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 0],
           [1, 1, 1, 1]])
    """
    return _band("causal", length, blocksize, None, 0, compact, xp)


def documents(
    lengths: Any,
    blocksize: Any,
    *,
    causal: bool = False,
    compact: bool = True,
    xp: ModuleType = np,
) -> BlockMask | bsr_array:
    """Return the mask of documents that are packed into one sequence: none attends to another.

    Parameters
    ----------
    lengths : sequence or host array of int
        Of the documents, in order; 0 is allowed. Their sum is the number of queries and keys.
    blocksize : int or pair of int
        Divides the sum, not the single lengths.
    causal : bool
        Only keys up to the query.
    compact : bool
        False returns a `bsr_array`.
    xp : {numpy, cupy}

    Returns
    -------
    BlockMask (L, L), or bsr_array (L, L), bool

    Raises
    ------
    ValueError
        A negative length; a sum that the block size does not divide.
    TypeError
        Lengths that are no integers, or on a device; an ``xp`` that is no array library.

    Examples
    --------
    >>> import sparsegpu
    >>> sparsegpu.masks.documents([3, 1], 2, causal=True).toarray().astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 0],
           [0, 0, 0, 1]])
    """
    function = "documents"
    check_options(function, xp, causal=causal, compact=compact)
    blocks = check_blocks(function, blocksize)
    counts = as_array(lengths, function, "lengths")
    if is_cupy(counts):
        raise bad_type(function, "lengths", "a sequence or an array on the host", "a cupy array")
    if counts.ndim != 1:
        raise bad_value(function, "lengths", "one dimension", f"shape {counts.shape}")
    if counts.size and counts.dtype.kind not in "iu":  # an empty list is float64
        raise bad_type(function, "lengths", "integers", counts.dtype)
    if counts.size and counts.min() < 0:
        raise bad_value(function, "lengths", "integers, none negative", counts.min())
    total = sum(counts.tolist())  # in Python: it may overflow
    if any(total % b for b in blocks):
        raise bad_value(function, "lengths", f"a sum that blocks of {blocks} divide", total)
    check_element_count(function, "lengths", (total, total))
    end = xp.asarray(np.cumsum(counts, dtype=np.int64))
    start = end - xp.asarray(counts.astype(np.int64))
    query = xp.arange(total, dtype=np.int64)
    document = xp.searchsorted(end, query, side="right")
    stop = query + 1 if causal else end[document]
    return in_form(_of_intervals(start[document], stop, (total, total), blocks), compact)


def prefix(
    length: Any,
    blocksize: Any,
    prefix: int,
    *,
    compact: bool = True,
    xp: ModuleType = np,
) -> BlockMask | bsr_array:
    """Return the mask of a prefix language model: key ``j <= i`` or ``j < prefix``.

    Parameters
    ----------
    length, blocksize : int or pair of int
    prefix : int
        The first keys, to which every query attends.
    compact : bool
        False returns a `bsr_array`.
    xp : {numpy, cupy}

    Returns
    -------
    BlockMask (L, S), or bsr_array (L, S), bool

    Raises
    ------
    ValueError, TypeError
        As `banded`.

    References
    ----------
    Raffel et al.: Exploring the Limits of Transfer Learning (2020), section 3.2.1.

    Examples
    --------
    >>> import sparsegpu
    >>> sparsegpu.masks.prefix(4, 2, 3).toarray().astype(int)
    array([[1, 1, 1, 0],
           [1, 1, 1, 0],
           [1, 1, 1, 0],
           [1, 1, 1, 1]])
    """
    function = "prefix"
    check_options(function, xp, compact=compact)
    shape, blocks = sizes(function, length, blocksize)
    prefix = check_count(function, "prefix", prefix)
    query = xp.arange(shape[0], dtype=np.int64)
    return in_form(
        _of_intervals(xp.zeros_like(query), xp.maximum(query + 1, prefix), shape, blocks), compact
    )


def _band(
    function: str,
    length: Any,
    blocksize: Any,
    lower: int | None,
    upper: int | None,
    compact: bool,
    xp: ModuleType,
) -> bsr_array | BlockMask:
    check_options(function, xp, compact=compact)
    shape, blocks = sizes(function, length, blocksize)
    lower = UNBOUNDED if lower is None else check_count(function, "lower", lower)
    upper = UNBOUNDED if upper is None else check_count(function, "upper", upper)
    query = xp.arange(shape[0], dtype=np.int64)
    return in_form(_of_intervals(query - lower, query + (upper + 1), shape, blocks), compact)


def _of_intervals(
    start: Any, stop: Any, shape: tuple[int, int], blocksize: tuple[int, int]
) -> BlockMask:
    """Return the mask of keys ``start[i] <= j < stop[i]``, int64 (L,) each.

    Neither ever decreases, and no query starts behind the end of the one before it. So the keys of
    a block row are one interval, too, and its first and last query say where it begins and ends,
    and which blocks are full.
    """
    xp, (bm, bk) = namespace(start), blocksize
    start, stop = (xp.clip(key, 0, shape[1]) for key in (start, stop))
    first = start[::bm] // bk
    count = xp.maximum(-(-stop[bm - 1 :: bm] // bk) - first, 0)
    row, number = expand_counts(count)
    column = first[row] + number
    indptr = xp.zeros(count.size + 1, dtype=np.int64)
    indptr[1:] = xp.cumsum(count)
    dtype = index_dtype(max(column.size, count.size, shape[1] // bk))
    where = indptr.astype(dtype), column.astype(dtype)
    pattern = Pattern(*where, shape, blocksize, check=False, copy=False)
    key = column * bk
    whole = (start[bm - 1 :: bm][row] <= key) & (stop[::bm][row] >= key + bk)
    kind = PARTIAL - whole.view(np.uint8)  # FULL is one less
    partial = xp.flatnonzero(~whole)
    query = row[partial][:, None] * bm + xp.arange(bm, dtype=np.int64)
    # Key numbers within the block, then within each word.
    low, high = (xp.clip(at[query] - key[partial][:, None], 0, bk) for at in (start, stop))
    word = xp.arange(words(bk), dtype=np.int64) * 32
    low, high = (xp.clip(at[..., None] - word, 0, 32) for at in (low, high))
    bits = (xp.left_shift(1, high) - xp.left_shift(1, low)).astype(np.uint32)
    return BlockMask._of(pattern, kind, bits)
