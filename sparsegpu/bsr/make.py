"""Random block-sparse arrays, dense ones pruned to the blocks of largest norm, and diagonals."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import as_array, namespace
from .._checks import (
    bad_type,
    bad_value,
    check_blocksize,
    check_choice,
    check_density,
    check_element_count,
    check_flags,
    check_integer,
    check_rng,
    check_size,
)
from .._signatures import numpy_by_default
from ..engines import engine_module
from ..ops._common import on_device
from ..pattern import from_sorted_keys
from .array import bsr_array
from .construct import check_shape, with_zeros
from .elements import OR_PAD, check_dtype, from_elements, padded


@numpy_by_default
def random_bsr(
    shape: tuple[int, ...],
    blocksize: tuple[int, int],
    density: float,
    *,
    dtype: Any = np.float64,
    rng: Any = None,
    pad: bool = False,
    xp: ModuleType = np,
) -> bsr_array:
    """Return an array with random blocks at random positions.

    Drawn on the host with NumPy, so that NumPy and CuPy get the same array from the same seed.

    Parameters
    ----------
    shape : (*batch, M, K)
    blocksize : (bm, bk)
    density : float
        In 0..1; every matrix stores ``round(density * number of blocks)`` blocks, at places
        drawn without replacement.
    dtype : dtype
        Floating and complex values are standard normal, integers uniform over int8, bool all
        True.
    rng : numpy.random.Generator or seed, optional
    pad : bool
        Where the block size does not divide the shape, add rows and columns of zeros: blocks at the
        edge are random within the shape that was asked for.
    xp : module
        ``numpy`` or ``cupy``.

    Returns
    -------
    bsr_array

    Raises
    ------
    ValueError
        A shape that the block size does not divide without ``pad``, a density outside 0..1.
    TypeError
        A dtype that cannot be held, an ``xp`` that is no array library.

    Examples
    --------
    >>> import sparsegpu
    >>> sparsegpu.random_bsr((64, 128), (16, 16), 0.25, dtype="float32", rng=0)
    <sparsegpu.bsr_array, shape (64, 128), float32, 8 blocks of 16x16 stored (density 0.25), on cpu>
    """
    function = "random_bsr"
    if not hasattr(xp, "asarray"):
        raise bad_type(function, "xp", "the module numpy or cupy", repr(xp))
    dtype = check_dtype(function, "dtype", dtype)
    bm, bk = check_blocksize(function, blocksize)
    check_flags(function, pad=pad)
    asked = check_shape(function, shape)
    *batch, m, k = shape = padded(function, asked, (bm, bk), bool(pad), hint=OR_PAD)
    check_element_count(function, "shape", shape)
    rows, columns = m // bm, k // bk
    count = round(check_density(function, density) * rows * columns)
    rng = check_rng(function, rng)
    size = int(np.prod(batch, dtype=np.int64))
    places = np.empty((size, count), dtype=np.int64)
    for b in range(size if count else 0):
        places[b] = np.sort(rng.choice(rows * columns, count, replace=False))
        places[b] += b * rows * columns
    pattern = from_sorted_keys(places.ravel(), tuple(batch), count, (m, k), (bm, bk))
    data = _values(rng, (*batch, count, bm, bk), dtype)
    if shape != asked:
        row, column = pattern.element_positions()  # rows of all matrices, one behind the other
        beyond = (row % max(m, 1) >= asked[-2]) | (column >= asked[-1])
        data[beyond.reshape(data.shape)] = 0
    return bsr_array._of(pattern.to_library(xp), xp.asarray(data))


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return np.ones(shape, dtype=bool)
    if dtype.kind == "i":
        return rng.integers(-128, 127, shape, endpoint=True, dtype=np.int8).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    work = np.float64 if dtype == np.float64 else np.float32
    return rng.standard_normal(shape, dtype=work).astype(dtype)


def prune_blocks(
    dense: Any,
    blocksize: tuple[int, int],
    density: float,
    norm: float = 2,
    *,
    pad: bool = False,
) -> bsr_array:
    """Keep the blocks of largest norm.

    Parameters
    ----------
    dense : array (*batch, M, K)
    blocksize : (bm, bk)
    density : float
        In 0..1; every matrix keeps ``round(density * number of blocks)`` blocks.
    norm : {1, 2, numpy.inf}
        Of a block's elements: sum of magnitudes, root of the sum of squares, largest magnitude;
        in float64. Ties keep the lower block index (row-major); NaN goes last.
    pad : bool
        Where the block size does not divide the shape, add rows and columns of zeros, which the
        result has, too.

    Returns
    -------
    bsr_array
        Of the array library of ``dense``.

    Raises
    ------
    ValueError
        A shape that the block size does not divide, a density outside 0..1, another norm.
    TypeError
        A dtype that cannot be held, or bool; sizes that are no integers, other arguments that are
        no numbers.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> W = np.array([[1.0, 0, 5, 0], [0, 1, 0, 0]])
    >>> sparsegpu.prune_blocks(W, (2, 2), 0.5).toarray()
    array([[0., 0., 5., 0.],
           [0., 0., 0., 0.]])
    """
    function = "prune_blocks"
    dense = as_array(dense, function, "dense")
    check_dtype(function, "dense", dense.dtype)
    blocksize = check_blocksize(function, blocksize)
    if dense.ndim < 2:
        raise bad_value(function, "dense", "shape (*batch, M, K)", tuple(dense.shape))
    check_choice(function, "norm", norm, (1, 2, np.inf))
    if dense.dtype.kind == "b":
        raise bad_type(function, "dense", "numbers", dense.dtype)
    check_flags(function, pad=pad)
    shape = padded(function, tuple(dense.shape), blocksize, bool(pad), hint=OR_PAD)
    rows, columns = shape[-2] // blocksize[0], shape[-1] // blocksize[1]
    count = round(check_density(function, density) * rows * columns)
    xp, batch = namespace(dense), tuple(dense.shape[:-2])
    size = int(np.prod(batch, dtype=np.int64))
    with on_device(dense):
        dense = with_zeros(dense, shape)
        norms = _block_norms(dense, blocksize, norm).reshape(size, rows * columns)
        # Stable on the negated norms: ties by index, NaN behind all numbers.
        best = xp.argsort(-norms, axis=1, kind="stable")[:, :count].astype(np.int64)
        keys = xp.sort(best, axis=1) + xp.arange(size, dtype=np.int64)[:, None] * (rows * columns)
        pattern = from_sorted_keys(keys.ravel(), batch, count, tuple(dense.shape[-2:]), blocksize)
        data = xp.empty((*batch, count, *blocksize), dense.dtype)
        if data.size:
            engine_module(xp, "convert", function).gather_blocks(data, pattern, dense)
    return bsr_array._of(pattern, data)


def _block_norms(dense: Any, blocksize: tuple[int, int], norm: float) -> Any:
    """Return a number that orders blocks as their norms do, (*batch, M/bm, K/bk)."""
    xp, (bm, bk), axes = namespace(dense), blocksize, (-3, -1)
    *batch, m, k = dense.shape
    # float64 holds the squares of the largest and the smallest value of all shorter dtypes.
    wide = np.complex128 if dense.dtype.kind == "c" else np.float64
    size = dense.astype(wide, order="C")  # the only copy
    if wide is np.complex128 and norm == 2:  # of real and imaginary parts: without their roots
        size, k, bk = size.view(np.float64), 2 * k, 2 * bk
    size = xp.absolute(size) if size.dtype.kind == "c" else xp.absolute(size, out=size)
    blocks = size.reshape(*batch, m // bm, bm, k // bk, bk)
    if norm == np.inf:
        return blocks.max(axis=axes)
    if dense.dtype != wide:
        return (blocks if norm == 1 else xp.square(blocks, out=blocks)).sum(axis=axes)
    # Squares of float64 may overflow: each block is scaled by a power of two.
    largest = blocks.max(axis=axes, keepdims=True)
    exponent = xp.where(xp.isfinite(largest), xp.frexp(largest)[1], 0)
    blocks = xp.ldexp(blocks, -exponent)
    total = blocks.sum(axis=axes) if norm == 1 else xp.sqrt(xp.square(blocks).sum(axis=axes))
    with np.errstate(over="ignore"):  # of a norm that is beyond float64 itself
        return xp.ldexp(total, exponent.reshape(total.shape))


@numpy_by_default
def eye(
    m: int,
    n: int | None = None,
    k: int = 0,
    dtype: Any = np.float64,
    *,
    blocksize: tuple[int, int] = (1, 1),
    pad: bool = False,
    xp: ModuleType = np,
) -> bsr_array:
    """Return a matrix with ones on a diagonal.

    Parameters
    ----------
    m : int
        Rows.
    n : int, optional
        Columns; by default as many.
    k : int
        The diagonal, above the main one where positive.
    dtype : dtype
    blocksize : (bm, bk)
    pad : bool
        Where the block size does not divide the shape, add rows and columns of zeros: the ones end
        where the matrix that was asked for does.
    xp : module
        ``numpy`` or ``cupy``.

    Returns
    -------
    bsr_array (m, n)

    Raises
    ------
    ValueError
        A negative size; without ``pad`` a block size that does not divide the shape.
    TypeError
        Sizes that are no integers; a dtype that cannot be held; an ``xp`` that is no array library.

    Examples
    --------
    >>> import sparsegpu
    >>> sparsegpu.eye(4, 6, k=2, blocksize=(2, 2)).indices
    array([1, 2], dtype=int32)
    >>> sparsegpu.eye(3, blocksize=(2, 2), pad=True).diagonal()
    array([1., 1., 1., 0.])
    """
    sizes = ("m", m), ("n", m if n is None else n)
    return _diagonal("eye", *sizes, k, dtype, blocksize, pad, xp)


@numpy_by_default
def identity(
    n: int,
    dtype: Any = np.float64,
    *,
    blocksize: tuple[int, int] = (1, 1),
    pad: bool = False,
    xp: ModuleType = np,
) -> bsr_array:
    """Return the identity matrix: `eye` of a square.

    Parameters
    ----------
    n : int
        Rows and columns.
    dtype : dtype
    blocksize : (bm, bk)
    pad : bool
        As in `eye`.
    xp : module
        ``numpy`` or ``cupy``.

    Returns
    -------
    bsr_array (n, n)

    Raises
    ------
    ValueError, TypeError
        As `eye`.

    Examples
    --------
    >>> import sparsegpu
    >>> sparsegpu.identity(4, blocksize=(2, 2)).nnzb
    2
    """
    return _diagonal("identity", ("n", n), ("n", n), 0, dtype, blocksize, pad, xp)


def _diagonal(
    function: str,
    rows: tuple[str, Any],
    columns: tuple[str, Any],
    k: Any,
    dtype: Any,
    blocksize: Any,
    pad: Any,
    xp: ModuleType,
) -> bsr_array:
    """Do `eye` for a caller of another name, with its names of the sizes."""
    if not hasattr(xp, "asarray"):
        raise bad_type(function, "xp", "the module numpy or cupy", repr(xp))
    m, n = (check_size(function, name, size) for name, size in (rows, columns))
    check_flags(function, pad=pad)
    check_element_count(function, rows[0], (m, n))
    k = check_integer(function, "k", k, "an integer")
    dtype = check_dtype(function, "dtype", dtype)
    blocksize = check_blocksize(function, blocksize)
    rounded = padded(function, (m, n), blocksize, bool(pad), hint=OR_PAD)
    check_element_count(function, rows[0], rounded)
    shape = (rounded[0], rounded[1])
    length = max(0, min(m + min(k, 0), n - max(k, 0)))
    down, right = (max(-k, 0), max(k, 0)) if length else (0, 0)
    i = xp.arange(length, dtype=np.int64)
    pattern, data = from_elements(
        function, rows[0], i + down, i + right, xp.ones(length, dtype), (), shape, blocksize
    )
    return bsr_array._of(pattern, data)
