"""Masks of whole blocks: fixed and random ones, those of largest score, lists."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import (
    HALF_DTYPES,
    check_may_wait,
    check_range,
    common_namespace,
    index_dtype,
    namespace,
)
from .._checks import bad_type, bad_value, check_flags, check_integer, check_rng
from .._signatures import numpy_by_default
from ..bsr.array import bsr_array
from ..bsr.block_mask import FULL, BlockMask, words
from ..bsr.construct import check_shape
from ..engines import checking_module
from ..ops._common import on_device
from ..pattern import Pattern, from_sorted_keys
from ._arguments import check_blocks, check_count, check_options, in_form, placed, sizes

_PIECE = 1 << 18  # blocks of BigBird's mask that are decided at a time


@numpy_by_default
def bigbird(
    length: Any,
    blocksize: Any,
    *,
    window: int = 1,
    global_blocks: int = 1,
    random_blocks: int = 1,
    rng: Any = None,
    compact: bool = False,
    xp: ModuleType = np,
) -> bsr_array | BlockMask:
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
    compact : bool
        Return a `BlockMask`.
    xp : {numpy, cupy}

    Returns
    -------
    bsr_array (L, S), bool, or BlockMask (L, S)
        All stored values are True.

    Raises
    ------
    ValueError, TypeError
        As `sparsegpu.banded`.

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
    check_options(function, xp, compact=compact)
    shape, blocksize = sizes(function, length, blocksize)
    window = check_count(function, "window", window)
    global_blocks = check_count(function, "global_blocks", global_blocks)
    random_blocks = check_count(function, "random_blocks", random_blocks)
    rows, columns = shape[0] // blocksize[0], shape[1] // blocksize[1]
    row, column = np.arange(rows)[:, None], np.arange(columns)
    stored = np.empty((rows, columns), dtype=bool)
    draw, last = check_rng(function, rng).random, min(random_blocks, columns) - 1
    step = max(1, _PIECE // max(columns, 1))
    for some in (slice(at, at + step) for at in range(0, rows, step)):
        of_all = (row[some] < global_blocks) | (column < global_blocks)
        free = ~((abs(row[some] - column) <= window) | of_all)
        if last >= 0:
            # The smallest of random ranks among what is free; ranks above 1 are not free.
            rank = draw(free.shape) + 2.0 * ~free
            order = np.argpartition(rank, last, axis=1)[:, : last + 1]
            np.put_along_axis(free, order, False, axis=1)
        stored[some] = ~free
    keys = xp.asarray(np.flatnonzero(stored).astype(np.int64))
    return in_form(_whole(from_sorted_keys(keys, (), int(keys.size), shape, blocksize)), compact)


def top_k(scores: Any, k: int, blocksize: Any, *, xp: ModuleType | None = None) -> BlockMask:
    """Return the mask of the ``k`` blocks of largest score in every block row.

    Parameters
    ----------
    scores : array (*B, L / bm, S / bk)
        A real number for each block, such as the product of mean queries and mean keys. Ties keep
        the lower column; NaN goes last.
    k : int
        In 1..S / bk.
    blocksize : int or pair of int
        (bm, bk).
    xp : {numpy, cupy}, optional
        The array library of the mask where ``scores`` is a list; arrays stay where they are.

    Returns
    -------
    BlockMask (*B, L, S)

    Raises
    ------
    ValueError
        ``k`` out of range; scores of less than two dimensions.
    TypeError
        Scores that are no real numbers, a ``k`` that is no integer.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> mask = sparsegpu.masks.top_k(np.array([[0.1, 0.9, 0.9], [0.3, 0.2, 0.4]]), 2, 64)
    >>> mask.shape, mask.indices
    ((128, 192), array([1, 2, 0, 2], dtype=int32))
    """
    function = "top_k"
    scores = placed(function, "scores", scores, xp)
    bm, bk = check_blocks(function, blocksize)
    if scores.ndim < 2:
        raise bad_value(function, "scores", "shape (*B, L / bm, S / bk)", tuple(scores.shape))
    if scores.dtype.kind not in "biuf" and scores.dtype not in HALF_DTYPES:
        raise bad_type(function, "scores", "real numbers", scores.dtype)
    *batch, rows, columns = scores.shape
    k = check_integer(function, "k", k, "an integer")
    if not 1 <= k <= columns:
        raise bad_value(function, "k", f"an integer in 1..{columns}, the block columns", k)
    shape = check_shape(function, (*batch, rows * bm, columns * bk))
    with on_device(scores):
        xp = namespace(scores)
        chosen = xp.empty((*batch, rows, k), index_dtype(columns))
        if chosen.size:
            checking_module(xp, "block_masks").top_k(chosen, scores)
        mask = _listed(chosen, shape, (bm, bk))
        mask.pattern.note("order", (True, True))
        return mask


def from_indices(
    indices: Any,
    counts: Any = None,
    *,
    shape: tuple[int, ...],
    blocksize: Any,
    check: bool = True,
    xp: ModuleType | None = None,
) -> BlockMask:
    """Return the mask of lists of block columns, one for each block row.

    Parameters
    ----------
    indices : integer array (*B, L / bm, most)
        Block columns in any order, none twice in a row.
    counts : integer array (*B, L / bm), optional
        How many entries of each list count; what stands beyond them is never read. By default
        all. Matrices of a batch may hold different numbers of blocks.
    shape : (L, S), or (*B, L, S)
    blocksize : int or pair of int
    check : bool
        Look at indices and counts (synchronises on a GPU). False trusts the caller, and nothing
        waits for a device.
    xp : {numpy, cupy}, optional
        Where the mask is made of lists. Arrays stay where they are.

    Returns
    -------
    BlockMask (*B, L, S)
        Of the blocks listed, in the order of the lists. With ``counts`` it may hold all ``most``
        blocks of each row, those beyond its count of kind 0: where the matrices of a batch hold
        different numbers of blocks, and with ``check=False``, which does not read the counts.

    Raises
    ------
    ValueError
        Shapes that do not fit; block columns out of range or repeated in a row; counts beyond the
        lists.
    TypeError
        Other dtypes than integers; host and device arrays together.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> lists, counts = np.array([[1, 0], [2, -1]]), np.array([2, 1])
    >>> mask = sparsegpu.masks.from_indices(lists, counts, shape=(2, 3), blocksize=1)
    >>> mask.toarray().astype(int)
    array([[1, 1, 0],
           [0, 0, 1]])
    """
    function = "from_indices"
    check_flags(function, check=check)
    indices = placed(function, "indices", indices, xp)
    counts = None if counts is None else placed(function, "counts", counts, xp)
    common_namespace(function, indices=indices, counts=counts)
    blocks = check_blocks(function, blocksize)
    shape = check_shape(function, shape)
    columns = _check_lists(function, indices, counts, shape, blocks)
    with on_device(indices):
        if check:
            _check_entries(function, indices, counts, columns)
        if counts is None:
            return _listed(indices, shape, blocks)
        indices = indices[..., :columns]  # lists of different columns are no longer
        counts = counts.astype(np.int64)
        listed = _counted(indices, counts)
        if check and _equal(counts.sum(axis=-1)):
            return _whole(_of_rows(indices[listed], counts, shape, blocks))
        filled = _filled(indices, counts, columns)
        return _listed(filled, shape, blocks, listed)


def _check_lists(
    function: str, indices: Any, counts: Any, shape: tuple[int, ...], blocks: tuple[int, int]
) -> int:
    """Refuse arrays that do not fit by their metadata; return the number of block columns."""
    (*batch, length, keys), (bm, bk) = shape, blocks
    if length % bm or keys % bk:
        raise bad_value(function, "shape", f"multiples of the blocksize {blocks}", shape)
    rows, columns = length // bm, keys // bk
    for name, array in (("indices", indices), ("counts", counts)):
        if array is not None and array.dtype.kind not in "iu":
            raise bad_type(function, name, "an integer dtype", array.dtype)
    found = tuple(indices.shape)
    if len(found) < 2 or found[-2] != rows or tuple(batch) not in {(), found[:-2]}:
        expected = f"shape {(*batch, rows, 'most')}" if batch else f"shape (*B, {rows}, most)"
        raise bad_value(function, "indices", expected, found)
    if counts is not None and tuple(counts.shape) != found[:-1]:
        raise bad_value(function, "counts", f"shape {found[:-1]}", tuple(counts.shape))
    if counts is None and indices.size and found[-1] > columns:
        expected = f"at most {columns} block columns in a row"
        raise bad_value(function, "indices", expected, found[-1])
    return columns


def _check_entries(function: str, indices: Any, counts: Any, columns: int) -> None:
    """Refuse entries that count and are out of range or repeated, and counts beyond the lists."""
    xp, most = namespace(indices), indices.shape[-1]
    check_may_wait(xp, f"{function} with a look at the indices")
    if counts is None:
        counts = xp.full(indices.shape[:-1], most, dtype=np.int64)
    check_range(function, "counts", counts, most + 1, f"counts in 0..{most}, as lists are long")
    listed = _counted(indices, counts)
    expected = f"block columns in 0..{columns - 1}"
    check_range(function, "indices", indices[listed], columns, expected)
    others = columns + xp.arange(most, dtype=np.int64)  # all different
    ordered = xp.sort(xp.where(listed, indices.astype(np.int64), others), axis=-1)
    again = ordered[..., 1:][ordered[..., 1:] == ordered[..., :-1]]
    if again.size:
        raise bad_value(function, "indices", "no block column twice in a row", int(again[0]))


def _counted(indices: Any, counts: Any) -> Any:
    """Return which entries of the lists count, bool."""
    return namespace(indices).arange(indices.shape[-1]) < counts[..., None]


def _equal(totals: Any) -> bool:
    """Return whether the matrices of a batch hold the same number of blocks."""
    return totals.size > 0 and int(totals.min()) == int(totals.max())


def _filled(indices: Any, counts: Any, columns: int) -> Any:
    """Return the lists with columns that they lack, the lowest first, where entries do not count.

    So no block is repeated, as any other filling would do.
    """
    xp, most = namespace(indices), indices.shape[-1]
    listed, place = _counted(indices, counts), xp.arange(most, dtype=np.int64)
    ordered = xp.sort(xp.where(listed, indices.astype(np.int64), columns), axis=-1)
    # How many columns are missing below each that is listed (these come first in order).
    missing = xp.where(listed, ordered - place, columns)
    # The n-th missing column is n plus the number of listed ones with at most n missing below.
    number = place - counts[..., None]
    row = xp.arange(counts.size, dtype=np.int64).reshape(*counts.shape, 1)
    apart = row * (columns + 1)  # one search for all rows
    found = xp.searchsorted((missing + apart).ravel(), (number + apart).ravel(), side="right")
    before = found.reshape(indices.shape) - row * most
    # Lists that nobody checked stay within the columns, too.
    filling = xp.clip(number + before, 0, max(columns - 1, 0))
    return xp.where(listed, indices.astype(np.int64), filling)


def _listed(
    lists: Any, shape: tuple[int, ...], blocksize: tuple[int, int], held: Any = None
) -> BlockMask:
    """Return the mask of lists (*B, rows, most), entry by entry.

    Of whole blocks: all, or those that ``held`` (bool, of the same shape) says.
    """
    xp, (*batch, rows, most) = namespace(lists), lists.shape
    dtype = _index_dtype(rows * most, shape, blocksize)
    indptr, indices = xp.empty((*batch, rows + 1), dtype), xp.empty((*batch, rows * most), dtype)
    kind = None if held is None else held.view(np.uint8).reshape(indices.shape)  # True is FULL
    wanted = xp.empty(indices.shape, np.uint8) if kind is None else None
    if indptr.size:
        checking_module(xp, "block_masks").listed(indptr, indices, wanted, lists)
    matrix = (shape[-2], shape[-1])
    pattern = Pattern(indptr, indices, matrix, blocksize, check=False, copy=False)
    return _mask(pattern, wanted if kind is None else kind)


def _of_rows(
    indices: Any, counts: Any, shape: tuple[int, ...], blocksize: tuple[int, int]
) -> Pattern:
    """Return the pattern of rows of so many blocks (*B, rows), whose columns stand one by one."""
    xp, (*batch, rows) = namespace(counts), counts.shape
    indices = indices.reshape(*batch, -1)
    dtype = _index_dtype(indices.shape[-1], shape, blocksize)
    indptr = xp.zeros((*batch, rows + 1), dtype)
    indptr[..., 1:] = xp.cumsum(counts, axis=-1)
    matrix = (shape[-2], shape[-1])
    # Cast without a look at the values, which would wait.
    return Pattern(indptr, indices.astype(dtype), matrix, blocksize, check=False, copy=False)


def _index_dtype(nnzb: int, shape: tuple[int, ...], blocksize: tuple[int, int]) -> np.dtype:
    """Return the dtype of a pattern's indices."""
    return index_dtype(max(nnzb, *(s // b for s, b in zip(shape[-2:], blocksize))))


def _whole(pattern: Pattern) -> BlockMask:
    """Return the mask of all blocks of a pattern."""
    return _mask(pattern, pattern.xp.full(pattern.data_shape[:-2], FULL, dtype=np.uint8))


def _mask(pattern: Pattern, kind: Any) -> BlockMask:
    """Return a mask without partial blocks."""
    bm, bk = pattern.blocksize
    return BlockMask._of(pattern, kind, pattern.xp.zeros((0, bm, words(bk)), dtype=np.uint32))
