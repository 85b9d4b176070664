"""Comparisons of a `bsr_array`, element by element."""

from __future__ import annotations

import operator
from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

from .._arrays import as_array, bfloat16, common_namespace
from .._checks import bad_type, broadcast_shape, not_offered
from ..ops._blocks_24 import is_sparse_blocks
from ..ops._canonical import distinct_blocks
from ..ops._common import check_sparse, is_block_mask, is_sparse, on_device
from .base import BsrBase
from .operators import aligned, as_data, flat, is_scalar, united


class Compared:
    """Elementwise comparisons: six operators over one method, and no truth value."""

    __slots__ = ()

    _instead_of_bool: str
    _compared: Callable[[Any, str, Callable], Any]

    def __eq__(self, other: Any) -> Any:
        return self._compared(other, "==", operator.eq)

    def __ne__(self, other: Any) -> Any:
        return self._compared(other, "!=", operator.ne)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, "<", operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, "<=", operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, ">", operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, ">=", operator.ge)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        name, instead = type(self).__name__, self._instead_of_bool
        raise ValueError(f"bool: the truth value of a {name} is ambiguous; {instead}")


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

    def _compared(self, other: Any, sign: str, operation: Callable) -> Any:
        return _compare(self, other, sign, operation)


def _compare(array: Any, other: Any, sign: str, operation: Callable) -> Any:
    function = f"bsr_array {sign}"
    check_sparse(function, "self", array)
    if is_scalar(other):
        return _with_scalar(array, other, function, operation)
    if is_sparse_blocks(other) or is_block_mask(other):
        other = other.tobsr()
    if is_sparse(other):
        return _with_sparse(array, other, function, operation)
    if not hasattr(other, "shape"):  # None, a string, a list
        return NotImplemented
    other = as_array(other, function, "other")
    common_namespace(function, self=array._data, other=other)
    check_ordered(function, operation, array.dtype, other.dtype)
    broadcast_shape(function, "other", array.shape, tuple(other.shape))
    with on_device(array._data):
        return operation(comparable(array.toarray()), comparable(other))


def _with_scalar(array: Any, other: Any, function: str, operation: Callable) -> Any:
    if isinstance(other, np.generic) and not isinstance(other, Number):
        other = other.item()  # CuPy takes no ml_dtypes scalar: convert it to a Python one
    if not isinstance(other, Number):
        common_namespace(function, self=array._data, other=other)
    check_ordered(function, operation, array.dtype, np.dtype(getattr(other, "dtype", type(other))))
    with on_device(array._data):
        _refuse_filling(function, operation(0, other))
        pattern, data = distinct_blocks(array, function)
        return array._with(pattern, operation(comparable(data), other))


def _with_sparse(array: Any, other: Any, function: str, operation: Callable) -> Any:
    _refuse_filling(function, operation(0, 0))
    check_ordered(function, operation, array.dtype, other.data.dtype)
    a, b = aligned(function, array, other)
    with on_device(a._data):
        xp = a._xp
        if a._pattern.same_as(b._pattern):
            (pattern, blocks), (_, others) = (distinct_blocks(x, function) for x in (a, b))
        else:
            a, b = a._canonical(function), b._canonical(function)
            pattern, blocks, place = united(a, b, function)
            others = xp.zeros_like(blocks)
            others[place] = flat(b)
        values = operation(comparable(blocks), comparable(others))
        return a._with(pattern, as_data(values, pattern))


def _refuse_filling(function: str, filled: Any) -> None:
    if filled:
        raise not_offered(
            function,
            "a comparison that holds for zeros (it would fill every element that is not stored)",
            "its opposite, as != is of ==, and A.toarray() compared with a dense array",
        )


def check_ordered(function: str, operation: Callable, *dtypes: np.dtype) -> None:
    if operation not in {operator.eq, operator.ne} and any(d.kind == "c" for d in dtypes):
        raise bad_type(function, "other", "real numbers (complex ones have no order)", dtypes[1])


def comparable(array: Any) -> Any:
    """Return an array that both libraries compare: bfloat16 as float32, which holds it."""
    return array.astype(np.float32) if array.dtype == bfloat16 else array
