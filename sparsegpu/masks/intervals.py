"""Masks in which every query attends to one interval of keys, however many blocks that takes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import as_array, is_cupy
from .._checks import bad_type, bad_value, check_element_count
from .._signatures import numpy_by_default
from ..bsr.array import bsr_array
from ..bsr.block_mask import BlockMask
from ..engines import checking_module
from ..engines._intervals import Intervals
from ._arguments import UNBOUNDED, check_blocks, check_count, check_options, in_form, sizes


@numpy_by_default
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


@numpy_by_default
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
        As `sparsegpu.banded`.

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


@numpy_by_default
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
        As `sparsegpu.banded`.

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


@numpy_by_default
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
        False returns a `sparsegpu.bsr_array`.
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
    ends = np.cumsum(counts, dtype=np.int64)
    intervals = Intervals(UNBOUNDED, 0 if causal else UNBOUNDED, ends=ends)
    return _made((total, total), blocks, intervals, compact, xp)


@numpy_by_default
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
        False returns a `sparsegpu.bsr_array`.
    xp : {numpy, cupy}

    Returns
    -------
    BlockMask (L, S), or bsr_array (L, S), bool

    Raises
    ------
    ValueError, TypeError
        As `sparsegpu.banded`.

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
    return _made(shape, blocks, Intervals(UNBOUNDED, 0, prefix), compact, xp)


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
    return _made(shape, blocks, Intervals(lower, upper), compact, xp)


def _made(
    shape: tuple[int, int],
    blocksize: tuple[int, int],
    intervals: Intervals,
    compact: bool,
    xp: ModuleType,
) -> bsr_array | BlockMask:
    engine = checking_module(xp, "block_masks")
    mask = BlockMask._of(*engine.interval_mask(shape, blocksize, intervals, xp))
    return in_form(mask, compact)
