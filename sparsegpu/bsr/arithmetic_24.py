"""Arithmetic of 2:4 arrays on their kept values: the metadata, and with it the format, stays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .._arrays import check_may_wait, float8_e4m3fn, namespace
from .._checks import bad_type, kind_of, not_offered
from .._overlap import same_memory
from .._protocols import leaves
from .align import is_scalar, scaled_values
from .powers import checked_decimals, checked_exponent, raised, rounded
from .ufuncs import Ufuncs

#: Of float8_e4m3fn: what CuPy does to its bytes, NumPy to its values.
_SIGN = np.uint8(0x80)


class Arithmetic24(Ufuncs):
    """Operators of 2:4 arrays: with numbers, and with arrays that keep the same elements.

    Results have the array's dtype, so the format of its metadata; what would change it is a
    TypeError.
    """

    __slots__ = ()

    #: Apply a function to kept values; ``linear``: to those of repeated blocks one by one.
    _mapped: Callable[..., Any]
    #: Apply a function to the kept values of two arrays of one class, shape and pattern.
    _paired: Callable[..., Any]
    copy: Callable[[], Any]

    def aslinearoperator(self) -> Any:
        """Return a linear operator of SciPy (host) or cupyx (GPU): see `sparsegpu.linalg`.

        Raises
        ------
        ValueError
            For a batch.
        TypeError
            For int8 and float8_e4m3fn.
        ImportError
            For a NumPy array where SciPy is not installed.
        """
        from ..linalg import aslinearoperator  # the solvers, which not everybody uses

        return aslinearoperator(self)

    def __mul__(self, other: Any) -> Any:
        return NotImplemented if leaves(other, "__rmul__") else self.__rmul__(other)

    def __rmul__(self, other: Any) -> Any:
        function = f"{type(self).__name__} *"
        if is_scalar(other):
            return self._scaled(function, other, "multiply")
        return self._paired(_checked_pair(function, self, other), other, operator.mul, False)

    def multiply(self, other: Any) -> Any:
        """Return the elementwise product with a number, or with an array that keeps the same.

        Raises
        ------
        TypeError
            Another operand, an array of another dtype, a number that would change the dtype.
        ValueError
            An array that keeps other elements, blocks that are stored twice.
        NotImplementedError
            Of float8_e4m3fn.
        """
        if is_scalar(other):
            return self._scaled("multiply", other, "multiply")
        return self._paired(_checked_pair("multiply", self, other), other, operator.mul, False)

    def power(self, n: Any) -> Any:
        """Return every kept value raised to a power: also ``A ** n``.

        Parameters
        ----------
        n : number
            Positive; of others what is not kept would not stay zero.

        Raises
        ------
        TypeError
            An ``n`` that is no real number, or that would change the dtype.
        ValueError
            An ``n`` that is larger than a float, or an integer that the dtype does not hold; blocks
            that are stored twice.
        NotImplementedError
            An ``n`` that is not positive, or an array; of float8_e4m3fn.
        """
        return self._raised("power", n)

    def __pow__(self, n: Any) -> Any:
        if leaves(n, "__rpow__"):
            return NotImplemented
        return self._raised(f"{type(self).__name__} **", n)

    def round(self, decimals: int = 0) -> Any:
        """Return every kept value rounded to ``decimals``, half to even, as `numpy.round` does.

        Raises
        ------
        TypeError
            When ``decimals`` is no integer.
        ValueError
            Blocks that are stored twice.
        NotImplementedError
            Of float8_e4m3fn.
        """
        decimals = checked_decimals("round", decimals)
        _refuse_float8("round", "rounding", self)
        return self._mapped("round", partial(rounded, decimals=decimals), False)

    def __round__(self, ndigits: int = 0) -> Any:
        return self.round(ndigits)

    def __truediv__(self, other: Any) -> Any:
        if leaves(other, "__rtruediv__"):
            return NotImplemented
        function = f"{type(self).__name__} /"
        if not is_scalar(other):
            what = "division by an array (0 / 0 is not 0 where nothing is kept)"
            raise not_offered(function, what, "division by a scalar")
        return self._scaled(function, other, "divide")

    def __add__(self, other: Any) -> Any:
        if leaves(other, "__radd__", arrays=True):
            return NotImplemented
        function = f"{type(self).__name__} +"
        return self._paired(_checked_pair(function, self, other), other, operator.add, True)

    def __sub__(self, other: Any) -> Any:
        if leaves(other, "__rsub__", arrays=True):
            return NotImplemented
        function = f"{type(self).__name__} -"
        return self._paired(_checked_pair(function, self, other), other, operator.sub, True)

    def __neg__(self) -> Any:
        return self._mapped(f"{type(self).__name__} -", _negative, True)

    def __pos__(self) -> Any:
        return self.copy()

    def __abs__(self) -> Any:
        return self._mapped("abs", _absolute, False)

    def _scaled(self: Any, function: str, factor: Any, name: str) -> Any:
        if self.dtype == float8_e4m3fn:
            what = "scaling float8_e4m3fn (which would round its values)"
            raise not_offered(function, what, "the scales of scaled_mm, astype('float16')")
        scale = partial(_scaled, function, factor=factor, name=name)
        return self._mapped(function, scale, True)

    def _raised(self: Any, function: str, n: Any) -> Any:
        n = checked_exponent(function, n, self.dtype, "A.todense() ** {}")
        _refuse_float8(function, "powers", self)
        return self._mapped(function, partial(_raised, function, n=n), False)

    def _elementwise(self: Any, ufunc: Any) -> Any:
        """Apply a ufunc of NumPy to every kept value; what is not kept has to stay zero."""
        function = f"numpy.{ufunc.__name__}"
        _refuse_float8(function, function, self)
        with np.errstate(all="ignore"):
            zero = ufunc(np.zeros((), self.dtype))
        if zero != 0:
            what = "what is not zero at zero (it would fill every element that is not kept)"
            instead = "functions that are, such as numpy.sqrt, and any function of A.todense()"
            raise not_offered(function, what, instead)
        if zero.dtype != self.dtype:
            expected = f"a function that returns {self.dtype} for it (astype before)"
            raise bad_type(function, "x", expected, zero.dtype)
        return self._mapped(function, ufunc, False)


def _refuse_float8(function: str, what: str, array: Any) -> None:
    """Refuse to compute in a dtype that would round every result."""
    if array.dtype == float8_e4m3fn:
        raise not_offered(function, f"{what} of float8_e4m3fn", "astype('float16') first")


def check_dtype_stays(function: str, dtype: np.dtype, result: Any, argument: str = "other") -> None:
    """Refuse results of another dtype, whose metadata another format may need."""
    if result.dtype != dtype:
        expected = f"a number that leaves {dtype} as it is (a Python number, or astype before)"
        raise bad_type(function, argument, expected, f"one that makes it {result.dtype}")


def same_elements(meta: Any, other: Any) -> bool:
    """Return whether two arrays of metadata keep the same; waits for a device if it has to look."""
    if same_memory(meta, other):
        return True
    check_may_wait(namespace(meta), "comparing the metadata of two 2:4 arrays")
    return meta.shape == other.shape and bool((meta == other).all())


def _checked_pair(function: str, array: Any, other: Any) -> str:
    """Refuse what is no 2:4 array of the same class and dtype; return the function's name."""
    name = type(array).__name__
    if type(other) is not type(array):
        expected = f"a number, or a {name} that keeps the same elements (see todense)"
        raise bad_type(function, "other", expected, kind_of(other))
    if other.dtype != array.dtype:
        raise bad_type(function, "other", f"dtype {array.dtype} like self (astype)", other.dtype)
    if array.dtype == float8_e4m3fn:
        what = "arithmetic of float8_e4m3fn (which would round every result)"
        raise not_offered(function, what, "astype('float16') of both")
    return function


def _scaled(function: str, packed: Any, factor: Any, name: str) -> Any:
    result = scaled_values(function, packed, factor, name)
    check_dtype_stays(function, packed.dtype, result)
    return result


def _raised(function: str, packed: Any, n: Any) -> Any:
    result = raised(packed, n)
    check_dtype_stays(function, packed.dtype, result, "n")
    return result


def _negative(packed: Any) -> Any:
    return packed ^ _SIGN if packed.dtype == np.uint8 else -packed


def _absolute(packed: Any) -> Any:
    return packed & ~_SIGN if packed.dtype == np.uint8 else namespace(packed).absolute(packed)
