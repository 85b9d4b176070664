"""Operands of ``@`` in one dtype, by SciPy's rules; the functions of products promote nothing."""

from __future__ import annotations

from functools import cache
from math import gcd
from typing import Any

import numpy as np

from .._arrays import HALF_DTYPES, OPERAND_DTYPES, as_array, check_dtype_among, common_namespace
from .._checks import bad_type, bad_value
from ..ops._common import check_sparse, in_dtype, is_sparse
from .align import check_precision, converted
from .elements import foreign_shape, is_foreign

_PROMOTED = tuple(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))
#: These are never promoted: who chose them chose their size.
_NARROW = (*HALF_DTYPES, np.dtype(np.int8))


def product_operands(
    function: str, array: Any, other: Any, from_the_right: bool
) -> tuple[Any, Any]:
    """Return ``array`` and the other operand of its product in one dtype, sparse ones in blocks.

    Of equal dtypes, both are what was given. Else values are converted at every call, and only
    what dtype they get is kept.
    """
    if type(other) is array._xp.ndarray and other.dtype == array._data.dtype:
        return array, other
    check_sparse(function, "self", array)
    if hasattr(other, "packed"):  # 2:4, whose products have rules of their own
        return array, other
    if is_sparse(other):
        check_sparse(function, "other", other)
        dtype = _product_dtype(function, array.dtype, other.data.dtype)
        other = array._with(other.pattern, other.data)
    elif is_foreign(other):
        dtype = _product_dtype(function, array.dtype, other.dtype)
        other = _in_blocks(function, array, other, dtype, from_the_right)
    else:
        other = as_array(other, function, "other")
        common_namespace(function, self=array._data, other=other)
        if other.ndim == 0:  # no product, whose error says so
            return array, other
        if _is_probe(array, other):
            dtype = array.dtype
        else:
            dtype = _product_dtype(function, array.dtype, other.dtype)
    return in_dtype(array, dtype), in_dtype(other, dtype)


def _in_blocks(function: str, array: Any, other: Any, dtype: np.dtype, from_the_right: bool) -> Any:
    """Return a sparse array of SciPy or cupyx in blocks that meet those of ``array``.

    Along the axis that is not summed a block is as long as along the other, where that divides.
    """
    shape = foreign_shape(function, "other", other)
    (m, k), (bm, bk) = array._pattern.shape, array.blocksize
    if from_the_right:
        if shape[1] != m:
            raise bad_value(function, "other", f"shape (N, {m})", shape)
        blocksize = (gcd(shape[0], bm), bm)
    else:
        if shape[0] != k:
            raise bad_value(function, "other", f"shape ({k}, N)", shape)
        blocksize = (bk, gcd(shape[1], bk))
    return converted(function, array, other, blocksize, dtype)


def _is_probe(array: Any, other: Any) -> bool:
    """Return whether SciPy's LinearOperator asks for the dtype of a product: by zeros in int8."""
    small = isinstance(other, np.ndarray) and other.ndim == 1 and other.dtype == np.int8
    return small and array.dtype in _PROMOTED and not other.any()


@cache
def _product_dtype(function: str, of_self: np.dtype, of_other: np.dtype) -> np.dtype:
    """Return the dtype in which two operands are multiplied, NumPy's common one."""
    if of_self == of_other:
        check_dtype_among(function, "self", of_self, OPERAND_DTYPES)
        return of_self
    if of_other.kind not in "biufc" and of_other not in _NARROW:
        raise bad_type(function, "other", "numbers", of_other)
    check_precision(function, "other", of_other)
    if of_self in _NARROW or of_other in _NARROW:
        wide = of_other if of_other in OPERAND_DTYPES else "float64"
        expected = (
            f"dtype {of_self} like A's (other.astype('{of_self}'), or A.astype('{wide}'); 16-bit "
            "floats and int8 are not promoted)"
        )
        raise bad_type(function, "other", expected, of_other)
    dtype = np.result_type(of_self, of_other)
    if dtype not in _PROMOTED:
        expected = f"a dtype that multiplies with {of_self} (astype: a float, or int8)"
        raise bad_type(function, "other", expected, of_other)
    return dtype
