"""Block masks for attention: bool block-sparse arrays that say which scores exist.

Every mask is exact by element: a block is stored when any of its elements may be attended, and
its values say which. `scaled_dot_product_attention` takes them as they are.

In all of them ``length`` is the number of queries and keys, or a pair (L, S) of both, which
``blocksize``, an integer or a pair, divides; ``xp`` (``numpy`` or ``cupy``) says where the mask is
made.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ._checks import bad_value, check_blocksize, check_flags, check_integers, check_sizes
from ._segments import expand_counts
from .bsr.array import bsr_array
from .pattern import from_sorted_keys

_UNBOUNDED = np.iinfo(np.int64).max // 4


def banded(
    length: Any,
    blocksize: Any,
    lower: int | None,
    upper: int | None = None,
    *,
    xp: ModuleType = np,
) -> bsr_array:
    """Return the mask of a band of diagonals: ``-lower <= j - i <= upper``.

    Parameters
    ----------
    length, blocksize : int or pair of int
    lower : int or None
        How far a key may lie before the query; None: as far as there are keys.
    upper : int, optional
        How far a key may lie after the query; by default as far as before it.
    xp : {numpy, cupy}

    Returns
    -------
    bsr_array (L, S), bool

    Raises
    ------
    ValueError
        A length that the block size does not divide; a negative count or width.
    TypeError
        Something else than integers.

    Examples
    --------
    >>> import sparsegpu
    >>> sparsegpu.banded(4, 2, 1).toarray().astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 1, 0],
           [0, 1, 1, 1],
           [0, 0, 1, 1]])
    """
    return _band("banded", length, blocksize, lower, lower if upper is None else upper, xp)


def sliding_window(
    length: Any,
    blocksize: Any,
    window: int,
    *,
    causal: bool = False,
    xp: ModuleType = np,
) -> bsr_array:
    """Return the mask of local attention: keys at most ``window`` away from the query.

    Parameters
    ----------
    length, blocksize : int or pair of int
    window : int
        ``abs(i - j) <= window`` (Longformer's window of w is ``window = w // 2`` here).
    causal : bool
        Only keys up to the query: ``0 <= i - j <= window``.
    xp : {numpy, cupy}

    Returns
    -------
    bsr_array (L, S), bool

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
    check_flags("sliding_window", causal=causal)
    window = _check_count("sliding_window", "window", window)  # None is `banded`'s alone
    return _band("sliding_window", length, blocksize, window, 0 if causal else window, xp)


def causal(length: Any, blocksize: Any, *, xp: ModuleType = np) -> bsr_array:
    """Return the mask of causal attention: key ``j <= i``, aligned at the first query and key.

    Parameters
    ----------
    length, blocksize : int or pair of int
    xp : {numpy, cupy}

    Returns
    -------
    bsr_array (L, S), bool

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
    return _band("causal", length, blocksize, None, 0, xp)


def bigbird(
    length: Any,
    blocksize: Any,
    *,
    window: int = 1,
    global_blocks: int = 1,
    random_blocks: int = 1,
    rng: Any = None,
    xp: ModuleType = np,
) -> bsr_array:
    """Return BigBird's mask: a window, global and random blocks, all counted in whole blocks.

    Parameters
    ----------
    length, blocksize : int or pair of int
    window : int
        Blocks on either side of the diagonal one (the paper's window of w blocks is
        ``window = w // 2``).
    global_blocks : int
        The first block rows and block columns, which attend to and are attended by everything.
    random_blocks : int
        More blocks in every row, drawn without replacement from those not stored yet.
    rng : numpy.random.Generator or seed, optional
        Drawn on the host, so that NumPy and CuPy get the same mask from the same seed.
    xp : {numpy, cupy}

    Returns
    -------
    bsr_array (L, S), bool, all stored values True

    Raises
    ------
    ValueError, TypeError
        As `banded`.

    References
    ----------
    Zaheer et al.: Big Bird: Transformers for Longer Sequences (2020), section 2.

    Examples
    --------
    >>> import sparsegpu
    >>> mask = sparsegpu.bigbird(1024, 64, window=1, global_blocks=1, random_blocks=2, rng=0)
    >>> mask.shape, mask.dtype, mask.nnzb
    ((1024, 1024), dtype('bool'), 104)
    """
    function = "bigbird"
    shape, blocksize = _sizes(function, length, blocksize)
    window = _check_count(function, "window", window)
    global_blocks = _check_count(function, "global_blocks", global_blocks)
    random_blocks = _check_count(function, "random_blocks", random_blocks)
    rows, columns = shape[0] // blocksize[0], shape[1] // blocksize[1]
    row, column = np.arange(rows)[:, None], np.arange(columns)
    stored = (abs(row - column) <= window) | (row < global_blocks) | (column < global_blocks)
    if random_blocks and columns:
        # The smallest of random ranks among what is free; ranks above 1 are not free.
        rank = np.random.default_rng(rng).random((rows, columns)) + 2.0 * stored
        order = np.argsort(rank, axis=1)[:, :random_blocks]
        chosen = np.zeros_like(stored)
        np.put_along_axis(chosen, order, True, axis=1)
        stored |= chosen
    keys = xp.asarray(np.flatnonzero(stored).astype(np.int64))
    return _of_keys(keys, shape, blocksize, lambda rows, columns: rows == rows)


def _band(
    function: str,
    length: Any,
    blocksize: Any,
    lower: int | None,
    upper: int | None,
    xp: ModuleType,
) -> bsr_array:
    shape, (bm, bk) = _sizes(function, length, blocksize)
    lower = _UNBOUNDED if lower is None else _check_count(function, "lower", lower)
    upper = _UNBOUNDED if upper is None else _check_count(function, "upper", upper)
    rows, columns = shape[0] // bm, shape[1] // bk
    # Block columns of a block row: from the first key of its first query to the last of its last.
    top = xp.arange(rows, dtype=np.int64) * bm
    first = xp.clip((top - lower) // bk, 0, columns)
    end = xp.clip((top + (bm - 1 + upper)) // bk + 1, 0, columns)
    count = xp.maximum(end - first, 0)
    row, number = expand_counts(count)
    return _of_keys(
        row * columns + first[row] + number,
        shape,
        (bm, bk),
        lambda i, j: (j - i >= -lower) & (j - i <= upper),
    )


def _of_keys(keys: Any, shape: tuple[int, int], blocksize: tuple[int, int], rule: Any) -> bsr_array:
    """Return the mask whose stored blocks are ``keys``, with the rule's values."""
    pattern = from_sorted_keys(keys, (), int(keys.size), shape, blocksize)
    data = pattern.xp.empty(pattern.data_shape, dtype=bool)
    data[...] = rule(*pattern.element_positions())
    return bsr_array._of(pattern, data)


def _sizes(function: str, length: Any, blocksize: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    pair = length if isinstance(length, tuple) else (length, length)
    blocks = blocksize if isinstance(blocksize, tuple) else (blocksize, blocksize)
    blocks = check_blocksize(function, blocks)
    expected = "an integer or a pair (L, S)"
    rows, columns = check_sizes(function, "length", pair, expected, count=2)
    if rows % blocks[0] or columns % blocks[1]:
        raise bad_value(function, "length", f"multiples of the blocksize {blocks}", pair)
    return (rows, columns), blocks


def _check_count(function: str, argument: str, count: Any) -> int:
    (count,) = check_integers(function, argument, (count,), "an integer")
    if count < 0:
        raise bad_value(function, argument, "an integer, not negative", count)
    return min(count, _UNBOUNDED)
