"""Random values, patterns and 2:4 matrices for tests, and their dense equivalents."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import dtype_of, is_cupy
from .._math import ceil_div


def to_host(array: Any) -> np.ndarray:
    """Return a NumPy array from a NumPy or CuPy one."""
    return array.get() if is_cupy(array) else np.asarray(array)


def random_values(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, *, small_integers: bool = False
) -> np.ndarray:
    """Return signed random data: standard normal, or integers in -3..3 whose sums are exact.

    Examples
    --------
    >>> import numpy as np
    >>> random_values(np.random.default_rng(0), (4,), "float32", small_integers=True)
    array([ 2.,  1.,  0., -2.], dtype=float32)
    """
    dtype = dtype_of(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)  # of shape () the comparison is no array
    if dtype.kind in "iu" and not small_integers:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    if small_integers:
        values = rng.integers(-3, 3, shape, endpoint=True).astype(np.float64)
        if dtype.kind == "c":
            values = values + 1j * rng.integers(-3, 3, shape, endpoint=True)
    else:
        values = rng.standard_normal(shape)
        if dtype.kind == "c":
            values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values).astype(dtype)


def random_blocks(
    rng: np.random.Generator,
    shape: tuple[int, int],
    blocksize: tuple[int, int],
    *,
    density: float = 0.3,
    batch: tuple[int, ...] = (),
    dtype: Any = "float32",
    duplicates: bool = False,
    shuffled: bool = True,
    small_integers: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``(data, indices, indptr)`` of a random pattern with corner cases.

    Parameters
    ----------
    rng : numpy.random.Generator
    shape : (M, K)
    blocksize : (bm, bk)
        Divides the shape.
    density : float
        How much of each matrix is stored; every matrix of a batch stores as many blocks. Rows
        may be empty.
    batch : tuple of int
    dtype : dtype
    duplicates : bool
        Let a position be stored several times.
    shuffled : bool
        Leave the columns of a row unsorted.
    small_integers : bool
        Values in -3..3, whose sums are exact.

    Returns
    -------
    data, indices, indptr : NumPy arrays

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> arrays = random_blocks(np.random.default_rng(0), (4, 6), (2, 3), density=0.5)
    >>> sparsegpu.bsr_array(arrays, shape=(4, 6)).nnzb
    2
    """
    (m, k), (bm, bk) = shape, blocksize
    rows, columns = m // bm, k // bk
    count = round(density * rows * columns)
    size = int(np.prod(batch, dtype=np.int64))
    indices = np.empty((size, count), dtype=np.int32)
    indptr = np.zeros((size, rows + 1), dtype=np.int32)
    for b in range(size):
        if duplicates and count:
            places = rng.integers(0, rows * columns, count)
        else:
            places = rng.choice(rows * columns, count, replace=False)
        if not shuffled:
            places = np.sort(places)
        places = places[np.argsort(places // max(columns, 1), kind="stable")]
        indices[b] = places % max(columns, 1)
        indptr[b, 1:] = np.cumsum(np.bincount(places // max(columns, 1), minlength=rows))
    data = random_values(rng, (*batch, count, bm, bk), dtype, small_integers=small_integers)
    return data, indices.reshape(*batch, count), indptr.reshape(*batch, rows + 1)


def random_24(
    rng: np.random.Generator,
    shape: tuple[int, int],
    dtype: Any = "float16",
    *,
    small_integers: bool = False,
) -> np.ndarray:
    """Return a dense 2:4 matrix (float32: 1:2) with every kind of group, -0.0 among its zeros.

    Parameters
    ----------
    rng : numpy.random.Generator
    shape : (m, k)
    dtype : dtype or str
    small_integers : bool
        Values in -3..3, whose sums are exact, instead of standard normal ones.

    Returns
    -------
    numpy.ndarray (m, k)

    Examples
    --------
    >>> import numpy as np
    >>> dense = random_24(np.random.default_rng(0), (2, 8), "int8", small_integers=True)
    >>> int((dense.reshape(-1, 4) != 0).sum(axis=-1).max()) <= 2
    True
    """
    dtype = dtype_of(dtype)
    group = 2 if dtype == np.float32 else 4
    m, k = shape
    keep = rng.random((m, ceil_div(k, group), group)).argsort(axis=-1) < group // 2
    keep &= rng.random(keep.shape) < 0.9
    values = random_values(rng, shape, dtype, small_integers=small_integers)
    zero = np.where(rng.random(shape) < 0.2, -0.0, 0.0).astype(dtype)
    return np.where(keep.reshape(m, keep.shape[1] * group)[:, :k], values, zero)


def dense_from_blocks(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return the dense matrix of a BSR triple by a plain loop; duplicates are summed.

    The result is wide enough to hold the sums exactly for the tests' sizes: int64, float64,
    longdouble for float64, and complex alike.
    """
    data, indices, indptr = to_host(data), to_host(indices), to_host(indptr)
    batch, (bm, bk) = data.shape[:-3], data.shape[-2:]
    dense = np.zeros((*batch, *shape), dtype=exact_dtype(data.dtype))
    with np.errstate(invalid="ignore"):  # inf - inf
        for b in np.ndindex(batch):
            for i in range(shape[0] // bm):
                for p in range(indptr[b][i], indptr[b][i + 1]):
                    j = indices[b][p]
                    block = data[b][p].astype(dense.dtype)
                    dense[b][i * bm : (i + 1) * bm, j * bk : (j + 1) * bk] += block
    return dense


def exact_dtype(dtype: np.dtype) -> np.dtype:
    """Return a dtype so much wider that its own rounding does not count."""
    if dtype.kind in "iub":
        return np.dtype(np.int64)
    if dtype.kind == "c":
        return np.dtype(np.clongdouble if dtype == np.complex128 else np.complex128)
    return np.dtype(np.longdouble if dtype == np.float64 else np.float64)
