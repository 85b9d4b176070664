"""What is done to every element of a `bsr_array`, or says where elements are.

All of this is not linear in the blocks, so that duplicates are summed first.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .._arrays import as_array, bfloat16, common_namespace
from .._checks import (
    bad_type,
    bad_value,
    broadcast_shape,
    check_integer,
    check_scalar,
    not_offered,
)
from .._protocols import leaves
from .._segments import distinct
from ..ops._blocks_24 import is_sparse_blocks
from ..ops._common import check_sparse, is_sparse, on_device
from ..pattern import from_sorted_keys
from .align import (
    as_data,
    check_can_be_set,
    check_held,
    check_values_writeable,
    common_dtype,
    in_blocks,
    is_scalar,
    side_by_side,
)
from .base import BsrBase
from .elements import by_scipy, check_dtype
from .powers import checked_decimals, checked_exponent, raised, rounded


class Elementwise(BsrBase):
    """Elementwise functions of `bsr_array`, positions of elements, and its diagonal set."""

    __slots__ = ()

    def maximum(self, other: Any) -> Any:
        """Return the larger of two elements everywhere; NaN prevails, as in NumPy.

        Parameters
        ----------
        other : scalar, bsr_array, sparse array of SciPy or cupyx, or dense array

        Returns
        -------
        bsr_array, or a dense array for a dense ``other``

        Raises
        ------
        ValueError
            Shapes that do not fit.
        TypeError
            Complex values; dtypes without a common one; mixed array libraries.
        NotImplementedError
            A positive scalar, which would fill every element that is not stored.

        Examples
        --------
        >>> import numpy as np, sparsegpu
        >>> A = sparsegpu.bsr_array(np.diag([1.0, -2]), blocksize=(1, 1))
        >>> A.maximum(0).toarray().diagonal()
        array([1., 0.])
        """
        return _extreme_of_two("maximum", self, other)

    def minimum(self, other: Any) -> Any:
        """Return the smaller of two elements everywhere: see `maximum`.

        Raises
        ------
        ValueError, TypeError
            As `maximum`.
        NotImplementedError
            A negative scalar, which would fill every element that is not stored.
        """
        return _extreme_of_two("minimum", self, other)

    def _elementwise(self, ufunc: Any) -> Self:
        """Apply a ufunc of NumPy to every element, for `Ufuncs`; the result's dtype is NumPy's."""
        function = f"numpy.{ufunc.__name__}"
        summed = self._canonical(function, "x")
        with np.errstate(all="ignore"):
            filled = ufunc(np.zeros((), self.dtype)) != 0
        if filled:
            raise not_offered(
                function,
                "what is not zero at zero (it would fill every element that is not stored)",
                "functions that are, such as numpy.sqrt, and any function of A.toarray()",
            )
        with on_device(summed._data):
            values = ufunc(summed._data)
        check_dtype(function, "x", values.dtype)
        return summed._with(summed._pattern, values)

    def power(self, n: Any, dtype: Any = None) -> Self:
        """Return every element raised to a power: also ``A ** n``.

        Parameters
        ----------
        n : number
            Positive; of others what is not stored would not stay zero.
        dtype : dtype, optional
            In which it is computed; by default the array's.

        Raises
        ------
        TypeError
            An ``n`` that is no real number, a dtype that cannot be held.
        ValueError
            An ``n`` that is larger than a float, or an integer that the array's integers do not
            hold; matrices of a batch that would keep different numbers of blocks.
        NotImplementedError
            An ``n`` that is not positive, or an array.
        """
        return _power("power", self, n, dtype)

    def __pow__(self, n: Any) -> Self:
        if leaves(n, "__rpow__"):
            return NotImplemented
        return _power("bsr_array **", self, n, None)

    def round(self, decimals: int = 0) -> Self:
        """Return every element rounded to ``decimals``, half to even, as `numpy.round` does.

        Raises
        ------
        TypeError
            When ``decimals`` is no integer.
        ValueError
            Matrices of a batch that would keep different numbers of blocks.
        """
        decimals = checked_decimals("round", decimals)
        summed = self._canonical("round")
        data = summed._data
        if data.dtype.kind == "b":
            return summed.copy()
        with on_device(data):
            values = rounded(data, decimals)
        return summed._with(summed._pattern, values)

    def __round__(self, ndigits: int = 0) -> Self:
        return self.round(ndigits)

    # -- where elements are -------------------------------------------------------------------

    def nonzero(self) -> tuple[Any, Any]:
        """Return row and column, int64, of the elements that are not zero, row by row.

        Raises
        ------
        ValueError
            For a batch.
        """
        check_sparse("nonzero", "self", self)
        self._refuse_batch("nonzero")
        xp, k = self._xp, self._pattern.shape[1]
        with on_device(self._data):
            summed: Any = self._canonical("nonzero")
            if by_scipy(summed._data):
                csr = summed.tocsr()
                row, stored = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr)), csr.data != 0
                return row[stored], csr.indices[stored].astype(np.int64)
            row, column = summed._pattern.element_positions()
            place = xp.sort((row * k + column)[summed._data != 0])
            return place // max(k, 1), place % max(k, 1)

    def setdiag(self, values: Any, k: int = 0) -> None:
        """Set a diagonal, in place; blocks that are not stored are added.

        Parameters
        ----------
        values : scalar or array
            Cast to the array's dtype. What is beyond the diagonal's end is not used, and what an
            array is too short for keeps its value.
        k : int
            Above the main diagonal where positive.

        Raises
        ------
        ValueError
            For a batch; a diagonal outside of the matrix; ``values`` of two dimensions.
        TypeError
            A ``k`` that is no integer; values that the dtype does not hold; mixed array libraries.
        """
        function = "setdiag"
        check_sparse(function, "self", self)
        self._refuse_batch(function)
        k = check_integer(function, "k", k, "an integer")
        (m, n), (bm, bk), xp = self._pattern.shape, self.blocksize, self._xp
        if not -m < k < n:
            raise bad_value(function, "k", f"a diagonal in {1 - m}..{n - 1}", k)
        if is_scalar(values):
            values = check_scalar(function, "values", values, complex_allowed=True)
            check_can_be_set(function, "values", values, self.dtype)
            kind, length = np.asarray(values).dtype, None
        else:
            values = as_array(values, function, "values")
            common_namespace(function, self=self._data, values=values)
            if values.ndim != 1:
                raise bad_value(function, "values", "a scalar or (n,)", f"shape {values.shape}")
            kind, length = values.dtype, int(values.size)
        if kind.kind not in "biufc" and kind != bfloat16:
            raise bad_type(function, "values", "numbers", kind)
        if kind.kind == "c" and self.dtype.kind != "c":
            raise bad_type(function, "values", f"real numbers for {self.dtype}", kind)
        count = min(m + min(k, 0), n - max(k, 0))
        count = count if length is None else min(count, length)
        with on_device(self._data):
            i = xp.arange(count, dtype=np.int64)
            row, column = i + max(-k, 0), i + max(k, 0)
            block = (row // bm) * (n // bk) + column // bk
            a = self._canonical(function)
            keys = a._pattern.keys()
            pattern, data = a._pattern, a._data
            union = distinct(xp.concatenate([keys, block]))
            if union.size != keys.size:
                pattern = from_sorted_keys(union, (), int(union.size), (m, n), (bm, bk))
                data = xp.zeros(pattern.data_shape, self.dtype)
                data[xp.searchsorted(union, keys)] = a._data
            check_values_writeable(function, data)
            new = values if length is None else values[:count].astype(self.dtype)
            data[xp.searchsorted(union, block), row % bm, column % bk] = new
            self._pattern, self._data = pattern, data


def _power(function: str, array: Any, n: Any, dtype: Any) -> Any:
    check_sparse(function, "self", array)
    wanted = array.dtype if dtype is None else check_dtype(function, "dtype", dtype)
    n = checked_exponent(function, n, wanted, "A.with_data(A.data ** {})")
    summed = array._canonical(function)
    with on_device(summed._data):
        values = raised(summed._data.astype(wanted, copy=False), n)
    check_dtype(function, "n", values.dtype)
    return summed._with(summed._pattern, values)


def _extreme_of_two(function: str, array: Any, other: Any) -> Any:
    check_sparse(function, "self", array)
    if is_sparse_blocks(other):
        other = other.tobsr()
    if not is_scalar(other):
        other = in_blocks(function, array, other)
        other = other if is_sparse(other) else as_array(other, function, "other")
    else:
        other = check_scalar(function, "other", other, complex_allowed=True)
    values = other.data if is_sparse(other) else np.asarray(other) if is_scalar(other) else other
    for name, dtype in (("self", array.dtype), ("other", values.dtype)):
        if dtype.kind == "c":
            raise bad_type(function, name, "real numbers (complex ones have no order)", dtype)
    xp = array._xp
    operation = getattr(xp, function)
    if is_scalar(other):
        if getattr(np, function)(0.0, float(other)) != 0:
            raise not_offered(
                function,
                f"the scalar {other} (it would fill every element that is not stored)",
                "zero and scalars beyond it, and a dense array (the result is dense)",
            )
        if array.dtype.kind == "b":
            raise bad_type(function, "self", "numbers beside a scalar (astype)", array.dtype)
        if isinstance(other, int):
            check_held(function, other, array.dtype)
            other = float(other) if array.dtype.kind == "f" else other
        summed = array._canonical(function)
        with on_device(summed._data):
            return summed._with(summed._pattern, _applied(operation, summed._data, other))
    if is_sparse(other):
        with on_device(array._data):
            pattern, blocks, others = side_by_side(function, array, other)
            return array._with(pattern, as_data(_applied(operation, blocks, others), pattern))
    common_namespace(function, self=array._data, other=other)
    dtype = common_dtype(function, array.dtype, other.dtype)
    broadcast_shape(function, "other", array.shape, tuple(other.shape), kind="shapes")
    with on_device(array._data):
        return _applied(operation, array.toarray().astype(dtype), other.astype(dtype))


def _applied(operation: Any, values: Any, other: Any) -> Any:
    """Return a function of values, of bfloat16 by way of float32, which holds it."""
    if values.dtype != bfloat16:
        return operation(values, other)
    other = other.astype(np.float32) if hasattr(other, "astype") else other
    return operation(values.astype(np.float32), other).astype(bfloat16)
