"""Comparisons of a `bsr_array`, element by element."""

from __future__ import annotations

import operator
from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

from .._arrays import as_array, bfloat16, common_namespace
from .._checks import bad_type, broadcast_shape, check_scalar, kind_of, not_offered
from .._protocols import leaves
from ..ops._blocks_24 import is_sparse_blocks
from ..ops._canonical import distinct_blocks
from ..ops._common import check_sparse, is_block_mask, is_sparse, on_device
from .align import (
    aligned,
    as_data,
    check_number,
    in_blocks,
    is_scalar,
    over_union,
    repeated,
    side_by_side,
)
from .base import BsrBase
from .elements import is_foreign

#: The other side's operator, which Python calls where ours returns NotImplemented.
_REFLECTED = {
    "==": "__eq__", "!=": "__ne__", "<": "__gt__", "<=": "__ge__", ">": "__lt__", ">=": "__le__",
}  # fmt: skip
#: What nobody means to compare elementwise, and Python would call unequal without a word.
_NO_ARRAYS = (str, bytes, list, tuple, set, frozenset, dict)


class Compared:
    """Elementwise comparisons: six operators over one method, and no truth value."""

    __slots__ = ()

    _instead_of_bool: str
    _compared: Callable[[Any, str, Callable], Any]

    def __eq__(self, other: Any) -> Any:
        return _comparison(self, other, "==", operator.eq)

    def __ne__(self, other: Any) -> Any:
        return _comparison(self, other, "!=", operator.ne)

    def __lt__(self, other: Any) -> Any:
        return _comparison(self, other, "<", operator.lt)

    def __le__(self, other: Any) -> Any:
        return _comparison(self, other, "<=", operator.le)

    def __gt__(self, other: Any) -> Any:
        return _comparison(self, other, ">", operator.gt)

    def __ge__(self, other: Any) -> Any:
        return _comparison(self, other, ">=", operator.ge)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        name, instead = type(self).__name__, self._instead_of_bool
        raise ValueError(f"bool: the truth value of a {name} is ambiguous; {instead}")


def _comparison(array: Any, other: Any, sign: str, operation: Callable) -> Any:
    function = f"{type(array).__name__} {sign}"
    if leaves(other, _REFLECTED[sign], arrays=True):
        return NotImplemented
    if isinstance(other, _NO_ARRAYS) and not is_foreign(other):  # SciPy's dok_array is a dict
        expected = "a number, a sparse or a dense array (numpy.asarray makes one)"
        raise bad_type(function, "other", expected, kind_of(other))
    if type(other) is int:
        check_scalar(function, "other", other, complex_allowed=True)
    return array._compared(other, function, operation)


class Comparisons(Compared, BsrBase):
    """``== != < <= > >=`` of `bsr_array`.

    With a scalar or another `bsr_array` the result is a bool `bsr_array`. It is offered where
    two elements that are not stored compare as false, as ``A != B`` and ``A > 1`` do. With a dense
    array the result is dense.
    """

    __slots__ = ()

    _instead_of_bool = (
        "A.nnzb > 0 says whether it stores anything, (A != B).sum() == 0 whether two are equal, "
        "A.same_pattern(B) of the pattern"
    )

    def _compared(self, other: Any, function: str, operation: Callable) -> Any:
        return _compare(self, other, function, operation)

    def _beside(self, other: Any, function: str) -> tuple[Any, Any]:
        return _both(self, other, function)


def _compare(array: Any, other: Any, function: str, operation: Callable) -> Any:
    check_sparse(function, "self", array)
    if is_scalar(other):
        return _with_scalar(array, other, function, operation)
    if is_sparse_blocks(other) or is_block_mask(other):
        other = other.tobsr()
    if is_foreign(other):
        _refuse_filling(function, operation(0, 0))
        other = in_blocks(function, array, other)
    if is_sparse(other):
        return _with_sparse(array, other, function, operation)
    if not hasattr(other, "shape"):  # None, or a class that may know bsr_array
        return NotImplemented
    other = as_array(other, function, "other")
    common_namespace(function, self=array._data, other=other)
    check_ordered(function, operation, array.dtype, other.dtype)
    broadcast_shape(function, "other", array.shape, tuple(other.shape), kind="shapes")
    with on_device(array._data):
        return operation(comparable(array.toarray()), comparable(other))


def _with_scalar(array: Any, other: Any, function: str, operation: Callable) -> Any:
    check_number(function, other)
    if isinstance(other, np.generic) and not isinstance(other, Number):
        other = other.item()  # CuPy takes no ml_dtypes scalar: convert it to a Python one
    if not isinstance(other, Number):
        common_namespace(function, self=array._data, other=other)
    check_ordered(function, operation, array.dtype, np.dtype(getattr(other, "dtype", type(other))))
    with on_device(array._data):
        _refuse_filling(function, operation(0, other))
        pattern, data = distinct_blocks(array, function, "self")
        return array._with(pattern, operation(comparable(data), other))


def _with_sparse(array: Any, other: Any, function: str, operation: Callable) -> Any:
    _refuse_filling(function, operation(0, 0))
    check_ordered(function, operation, array.dtype, other.data.dtype)
    with on_device(array._data):
        pattern, blocks, others = side_by_side(function, array, other)
        values = operation(comparable(blocks), comparable(others))
        return array._with(pattern, as_data(values, pattern))


def _both(array: Any, other: Any, function: str) -> tuple[Any, Any]:
    """Return the values of both wherever either stores one, as dense arrays that compare."""
    check_sparse(function, "self", array)
    if is_sparse_blocks(other) or is_block_mask(other):
        other = other.tobsr()
    other = in_blocks(function, array, other)
    if is_sparse(other):
        check_sparse(function, "other", other)
        pair = (array, array._with(other.pattern, other.data))
        batch = broadcast_shape(function, "other", *(x._pattern.batch_shape for x in pair))
        a, b = aligned(function, *(repeated(x, batch)._one_matrix() for x in pair))
        with on_device(a._data):
            a, b = a._canonical(function), b._canonical(function)
            if a._pattern.same_as(b._pattern):
                return comparable(a._data), comparable(b._data)
            _, blocks, others = over_union(a, b, function)
            return comparable(blocks), comparable(others)
    other = as_array(other, function, "other")
    common_namespace(function, self=array._data, other=other)
    with on_device(array._data):
        return comparable(array.toarray()), comparable(other)


def _refuse_filling(function: str, filled: Any) -> None:
    if filled:
        raise not_offered(
            function,
            "a comparison that holds for zeros (it would fill every element that is not stored)",
            "its opposite, as != is of ==, and A.toarray() compared with a dense array",
        )


def check_ordered(function: str, operation: Callable, *dtypes: np.dtype) -> None:
    """Refuse an order of complex numbers; the dtypes are of ``self`` and of ``other``."""
    if operation in {operator.eq, operator.ne}:
        return
    for name, dtype in zip(("self", "other"), dtypes):
        if dtype.kind == "c":
            raise bad_type(function, name, "real numbers (complex ones have no order)", dtype)


def comparable(array: Any) -> Any:
    """Return an array that both libraries compare: bfloat16 as float32, which holds it."""
    return array.astype(np.float32) if array.dtype == bfloat16 else array
