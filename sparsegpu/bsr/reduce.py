"""Sums, extremes and the diagonal of a `bsr_array`.

Sums over rows and columns are products with ones, so they run on the engine, in accumulator
precision, and are rounded once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .._arrays import (
    CONTAINER_DTYPES,
    HALF_DTYPES,
    accumulator_dtype,
    bfloat16,
    check_dtype_name,
    namespace,
)
from .._checks import bad_type, bad_value, check_flags, check_integer
from ..engines import engine_module
from ..ops._bsr_product import matmul
from ..ops._common import check_sparse, on_device, optional_out, prepare_out
from ..pattern import Pattern
from .base import BsrBase
from .extremes import reduced, row_extremes


class Reductions(BsrBase):
    """Reductions of `bsr_array`; their results are dense."""

    __slots__ = ()

    def sum(
        self, axis: Any = None, dtype: Any = None, out: Any = None, *, keepdims: bool = False
    ) -> Any:
        """Return the sum of all elements, or along an axis of the matrices.

        Parameters
        ----------
        axis : {None, -1, -2} or the same counted from the front, or both in a tuple
            None sums everything, batch included.
        dtype : dtype, optional
            Of the result and of the summation. By default the array's; int64 for integers and
            bool.
        out : array, optional
            Of the result's shape and dtype; written and returned.
        keepdims : bool
            Keep the axes that are summed, with length one.

        Returns
        -------
        scalar (on a GPU: an array without dimensions) or dense array

        Raises
        ------
        ValueError
            For an axis of the batch, or an ``out`` that does not fit.
        TypeError
            For an ``out`` of another dtype or array library.
        """
        axes, wanted = _axes_and_dtype("sum", self, axis, dtype, np.int64)
        with on_device(self._data):
            total = _total("sum", self, axes, wanted).astype(wanted)
            return _written("sum", kept_axes("sum", total, self, axes, keepdims), out)

    def mean(
        self, axis: Any = None, dtype: Any = None, out: Any = None, *, keepdims: bool = False
    ) -> Any:
        """Return the mean of all elements (those not stored count), or along an axis.

        As `sum`; of integers and bool it is float64.

        Raises
        ------
        ValueError, TypeError
            As `sum`.
        """
        axes, wanted = _axes_and_dtype("mean", self, axis, dtype, np.float64)
        lengths = self.shape if axes is None else [self.shape[a] for a in axes]
        with on_device(self._data):
            total = _total("mean", self, axes, wanted)
            total = total.astype(np.float64) if total.dtype.kind == "i" else total
            count = int(np.prod(lengths, dtype=np.int64))
            mean = (total / total.dtype.type(count)).astype(wanted)
            return _written("mean", kept_axes("mean", mean, self, axes, keepdims), out)

    def max(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        """Return the largest element (those not stored are zeros), or along an axis.

        NaN prevails, as in NumPy. Duplicate blocks are summed first.

        Raises
        ------
        ValueError
            For an axis of the batch, or of length zero; an ``out`` that does not fit.
        TypeError
            For complex values; an ``out`` of another dtype or array library.
        """
        return _extreme("max", self, axis, out, keepdims, "maximum")

    def min(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        """Return the smallest element (those not stored are zeros), or along an axis: `max`.

        Raises
        ------
        ValueError, TypeError
            As `max`.
        """
        return _extreme("min", self, axis, out, keepdims, "minimum")

    def nanmax(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        """Return the largest element that is not NaN, or along an axis: see `max`.

        NaN where nothing else is.

        Raises
        ------
        ValueError, TypeError
            As `max`.

        Examples
        --------
        >>> import numpy as np, sparsegpu
        >>> A = sparsegpu.bsr_array(np.array([[np.nan, 2], [0, 1]]), blocksize=(1, 2))
        >>> A.nanmax(axis=1)
        array([2., 1.])
        """
        return _extreme("nanmax", self, axis, out, keepdims, "fmax")

    def nanmin(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        """Return the smallest element that is not NaN, or along an axis: see `nanmax`.

        Raises
        ------
        ValueError, TypeError
            As `max`.
        """
        return _extreme("nanmin", self, axis, out, keepdims, "fmin")

    def count_nonzero(self, axis: Any = None) -> Any:
        """Return the number of elements that are not zero, or along an axis; int64.

        Duplicate blocks are summed first.

        Raises
        ------
        ValueError
            For an axis of the batch; matrices of a batch that would keep different numbers of
            blocks.
        TypeError
            For an axis that is no integer.
        """
        function = "count_nonzero"
        axes, _ = _axes_and_dtype(function, self, axis, None, np.int64)
        with on_device(self._data):
            summed = self._canonical(function)
            if axes is None and self._xp is np:  # without an array of bools
                return np.int64(np.count_nonzero(summed._data))
            nonzero = summed._with(summed._pattern, summed._data != 0)
            return _total(function, nonzero, axes, np.dtype(np.int64)).astype(np.int64)

    def trace(self, offset: int = 0) -> Any:
        """Return the sum of a diagonal (of each matrix of a batch); of integers it is int64.

        Parameters
        ----------
        offset : int
            Above the main diagonal where positive.

        Raises
        ------
        TypeError
            When ``offset`` is no integer.
        """
        offset = check_integer("trace", "offset", offset, "an integer")
        dtype = np.dtype(np.int64) if self.dtype.kind in "ib" else self.dtype
        work = np.dtype(np.float32) if dtype in HALF_DTYPES else dtype
        check_sparse("trace", "self", self)
        with on_device(self._data):
            return self.diagonal(offset).astype(work).sum(axis=-1).astype(dtype)

    def diagonal(self, k: int = 0) -> Any:
        """Return the ``k``-th diagonal (of each matrix of a batch), dense.

        Parameters
        ----------
        k : int
            Above the main diagonal where positive. Empty where the matrix has no such diagonal.

        Raises
        ------
        TypeError
            When ``k`` is no integer.
        """
        *batch, m, n = self.shape
        k = check_integer("diagonal", "k", k, "an integer")
        length = max(0, min(m + min(k, 0), n - max(k, 0)))
        check_sparse("diagonal", "self", self)
        with on_device(self._data):
            if not length:
                return self._xp.zeros((*batch, 0), self.dtype)
            summed = self._one_matrix()._canonical("diagonal")
            pattern, values = summed._pattern, summed._data.reshape(-1)
            build = partial(_diagonal, pattern, m, k, length)
            source, place = pattern.memo_recent("diagonal", (m, k), build)
            if source.size == self._pattern.batch_size * length:
                out = values[source]
            else:
                out = self._xp.zeros(self._pattern.batch_size * length, self.dtype)
                out[place] = values[source]
        return out.reshape(*batch, length)


def _diagonal(pattern: Pattern, m: int, k: int, length: int) -> tuple[Any, Any]:
    """Return which stored elements are on the k-th diagonals, and their places there.

    The pattern is canonical, of matrices of ``m`` rows one below another; places ascend.
    """
    xp, (bm, bk) = pattern.xp, pattern.blocksize
    # The diagonal enters a block in its row 0 and column `first`, or in its row -first, column 0.
    first = pattern.rows.astype(np.int64)
    first %= max(m // bm, 1)
    first *= bm
    first += k
    first -= pattern.indices * np.int64(bk)
    met = xp.flatnonzero((first > -bm) & (first < bk))[:, None]
    line = xp.arange(bm, dtype=np.int64)
    lane = first[met] + line
    row = pattern.rows[met].astype(np.int64) * bm + line
    on = (lane >= 0) & (lane < bk)
    source = ((met * bm + line) * bk + lane)[on]
    place = (row // m * length + row % m + min(k, 0))[on]
    order = xp.argsort(place)
    return source[order], place[order]


def _axes_and_dtype(
    function: str, array: Any, axis: Any, dtype: Any, of_integers: type
) -> tuple[tuple[int, ...] | None, np.dtype]:
    """Return the axes and the dtype of a sum; ``of_integers`` is the default for integers."""
    check_sparse(function, "self", array)
    axes = matrix_axes(function, axis, array.ndim)
    if dtype is None:
        return axes, np.dtype(of_integers) if array.dtype.kind in "ib" else array.dtype
    wanted = check_dtype_name(function, "dtype", dtype)
    if wanted.kind not in "biufc" and wanted != bfloat16:
        raise bad_type(function, "dtype", "a dtype of numbers", wanted)
    return axes, wanted


def matrix_axes(function: str, axis: Any, ndim: int) -> tuple[int, ...] | None:
    """Return the axes as a sorted tuple out of (-2, -1), None for everything."""
    if axis is None:
        return None
    given = axis if isinstance(axis, tuple) else (axis,)
    counted = [check_integer(function, "axis", a, "an integer, a tuple or None") for a in given]
    axes = {a - ndim if a >= 0 else a for a in counted}
    if not axes or not axes <= {-1, -2} or len(axes) != len(given):
        raise bad_value(function, "axis", f"None, {ndim - 2}, {ndim - 1}, -2 or -1", axis)
    return tuple(sorted(axes))


def kept_axes(
    function: str, result: Any, array: Any, axes: tuple[int, ...] | None, keepdims: Any
) -> Any:
    """Return a result with the axes that were reduced, of length one, if that is wanted."""
    check_flags(function, keepdims=keepdims)
    if not keepdims:
        return result
    if axes is None:
        return result.reshape((1,) * array.ndim)
    shape = list(array.shape)
    for axis in axes:
        shape[axis] = 1
    return result.reshape(shape)


def _written(function: str, result: Any, out: Any) -> Any:
    """Return the result, in ``out`` if there is one."""
    if out is None:
        return result
    given = optional_out(out, function)
    prepare_out(function, given, result.shape, result.dtype, namespace(result))[...] = result
    return out


def _total(function: str, array: Any, axes: tuple[int, ...] | None, wanted: np.dtype) -> Any:
    """Return sums, at least in accumulator precision."""
    xp = array._xp
    if array.dtype.kind == "b":
        if not array.has_canonical_format:
            return _total_of_distinct(function, array, axes, wanted)
        array = array._with(array._pattern, array._data.view(np.int8))
    if wanted.kind in "fc" and array.dtype.kind in "fc" and wanted.itemsize > array.dtype.itemsize:
        held = wanted in CONTAINER_DTYPES
        array = array.astype(wanted if held else np.result_type(array.dtype, np.float64))
    if axes is None or len(axes) == 2:
        where = None if axes is None else (-3, -2, -1)
        dtype = np.dtype(np.int64) if array.dtype.kind == "i" else accumulator_dtype(array.dtype)
        data = array._data
        return (data.astype(dtype) if data.dtype in HALF_DTYPES else data).sum(where, dtype=dtype)
    if array.dtype == np.int32 or _leaves_int32(array, axes):
        array = array.astype(np.float64)  # exact: sums of int32 stay below 2**53
    out_dtype = accumulator_dtype(array.dtype)
    ones = xp.ones(array.shape[axes[0]], array.dtype)
    from_the_right = axes == (-2,)
    if out_dtype == array.dtype:  # a short product has a short way
        return array._matmul(function, ones, from_the_right)
    return matmul(function, array, ones, out_dtype=out_dtype, from_the_right=from_the_right)


def _total_of_distinct(
    function: str, array: Any, axes: tuple[int, ...] | None, wanted: np.dtype
) -> Any:
    """Return sums of bool, of which a repeated block counts once."""
    if axes == (-2,):
        array, axes = array.T, (-1,)
    batch, (m, _) = array._pattern.batch_shape, array._pattern.shape
    one = array._one_matrix()._canonical(function)
    if axes is None:
        return _total(function, one, None, wanted)
    by_row = _total(function, one, (-1,), wanted).reshape(*batch, m)
    return by_row.sum(axis=-1) if len(axes) == 2 else by_row


def _leaves_int32(array: Any, axes: tuple[int, ...]) -> bool:
    """Whether sums of int8, not multiplied by anything, may be too many for int32."""
    pattern, most = array._pattern, 2**24
    size = pattern.blocksize[axes[0]]
    if array.dtype != np.int8 or pattern.nnzb * size <= most:
        return False
    if axes == (-2,):
        pattern, _ = engine_module(array._xp, "convert", "sum").transpose_pattern(pattern)
    return pattern.longest_row * size > most


def _extreme(function: str, array: Any, axis: Any, out: Any, keepdims: bool, name: str) -> Any:
    best = extreme(array, axis, function, name)
    axes = matrix_axes(function, axis, array.ndim)
    return _written(function, kept_axes(function, best, array, axes, keepdims), out)


def extreme(array: Any, axis: Any, function: str, name: str) -> Any:
    """Do `max` or `min` for a caller of another name; ``name`` is that of the ufunc."""
    check_sparse(function, "self", array)
    axes = matrix_axes(function, axis, array.ndim)
    xp, dtype = array._xp, array.dtype
    if dtype.kind == "c":
        raise bad_type(function, "self", "a dtype with an order", dtype)
    lengths = array.shape if axes is None else [array.shape[a] for a in axes]
    if 0 in lengths:
        raise bad_value(function, "axis", "something to compare", f"shape {array.shape}")
    operation = getattr(xp, name)
    with on_device(array._data):
        batch, (m, k) = array._pattern.batch_shape, array._pattern.shape
        if axes == (-2,):
            array, m, k = array.T, k, m
        array = array._one_matrix()._canonical(function)
        # float32 holds every 16-bit float, int8 every bool
        work = {2: np.float32}.get(dtype.itemsize, np.int8 if dtype.kind == "b" else dtype)
        data = array._data.astype(work, copy=False)
        if axes is None:
            best = reduced(data, name) if data.size else xp.zeros((), work)
            filled = array.nnz == array._pattern.shape[0] * k
            return (best if filled else operation(best, 0)).astype(dtype)
        best = row_extremes(array._pattern, reduced(data, name, -1), operation)
        best = best.reshape(*batch, m)
        return (reduced(best, name, -1) if len(axes) == 2 else best).astype(dtype)
