"""Comparisons of a `SemiStructuredArray`, element by element."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

from .._arrays import as_array, common_namespace, float8_e4m3fn
from .._checks import bad_type, bad_value, broadcast_shape
from .._protocols import Sparse
from ..bsr.align import check_number
from ..bsr.compare import Compared, check_ordered
from ..ops._blocks_24 import is_semi_structured
from ..ops._common import on_device
from .cast import decoded


class Comparisons(Compared):
    """``== != < <= > >=`` of `SemiStructuredArray`, with numbers, 2:4 arrays and dense ones.

    The result is a dense bool array: elements that are not kept compare as zeros.
    """

    __slots__ = ()

    _instead_of_bool = "(A == B).all() says whether two are equal"

    def _compared(self: Any, other: Any, function: str, operation: Callable) -> Any:
        check_number(function, other)
        if isinstance(other, np.generic):
            other = other.item()  # a Python scalar, which both array libraries take
        if isinstance(other, Number):
            check_ordered(function, operation, self.dtype, np.dtype(type(other)))
            with on_device(self._halves.any().packed):
                return operation(decoded(self.todense(), self.dtype), other)
        if not hasattr(other, "shape"):  # None, or a class that may know SemiStructuredArray
            return NotImplemented
        with on_device(self._halves.any().packed):
            dense, dtype = _dense(function, self, other)
            check_ordered(function, operation, self.dtype, dtype)
            broadcast_shape(function, "other", self.shape, tuple(dense.shape))
            return operation(decoded(self.todense(), self.dtype), decoded(dense, dtype))

    def _beside(self: Any, other: Any, function: str) -> tuple[Any, Any]:
        """Return the values of both as dense arrays that compare."""
        with on_device(self._halves.any().packed):
            other, dtype = _dense(function, self, other)
            return decoded(self.todense(), self.dtype), decoded(other, dtype)


def _dense(function: str, array: Any, other: Any) -> tuple[Any, np.dtype]:
    """Return what is compared with as a dense array, and the dtype that it stands for."""
    if is_semi_structured(other):
        if other.shape != array.shape:
            raise bad_value(function, "other", f"shape {array.shape}", other.shape)
        dense, dtype = other.todense(), other.dtype
    elif isinstance(other, Sparse) or hasattr(other, "tocsr"):
        expected = "a number, a dense array or a SemiStructuredArray (toarray() makes a dense one)"
        raise bad_type(function, "other", expected, type(other).__name__)
    else:
        dense = as_array(other, function, "other")
        dtype = dense.dtype
        if array.dtype == float8_e4m3fn and dtype == np.uint8:
            expected = "numbers (A.todense() == bytes compares the bytes of float8_e4m3fn)"
            raise bad_type(function, "other", expected, "uint8")
    common_namespace(function, self=array._halves.any().packed, other=dense)
    return dense, dtype
