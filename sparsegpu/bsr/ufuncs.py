"""Ufuncs of NumPy that are zero at zero, as the methods that SciPy's arrays have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np


class Ufuncs:
    """NumPy's functions of one array, of which those that SciPy's arrays have are methods."""

    __slots__ = ()

    #: Apply a ufunc of NumPy to every element; what is not stored has to stay zero.
    _elementwise: Callable[[Any], Any]

    def arcsin(self) -> Self:
        """Return `numpy.arcsin` of every element."""
        return self._elementwise(np.arcsin)

    def arcsinh(self) -> Self:
        """Return `numpy.arcsinh` of every element."""
        return self._elementwise(np.arcsinh)

    def arctan(self) -> Self:
        """Return `numpy.arctan` of every element."""
        return self._elementwise(np.arctan)

    def arctanh(self) -> Self:
        """Return `numpy.arctanh` of every element."""
        return self._elementwise(np.arctanh)

    def ceil(self) -> Self:
        """Return `numpy.ceil` of every element."""
        return self._elementwise(np.ceil)

    def deg2rad(self) -> Self:
        """Return `numpy.deg2rad` of every element."""
        return self._elementwise(np.deg2rad)

    def expm1(self) -> Self:
        """Return `numpy.expm1` of every element."""
        return self._elementwise(np.expm1)

    def floor(self) -> Self:
        """Return `numpy.floor` of every element."""
        return self._elementwise(np.floor)

    def log1p(self) -> Self:
        """Return `numpy.log1p` of every element."""
        return self._elementwise(np.log1p)

    def rad2deg(self) -> Self:
        """Return `numpy.rad2deg` of every element."""
        return self._elementwise(np.rad2deg)

    def rint(self) -> Self:
        """Return `numpy.rint` of every element."""
        return self._elementwise(np.rint)

    def sign(self) -> Self:
        """Return `numpy.sign` of every element."""
        return self._elementwise(np.sign)

    def sin(self) -> Self:
        """Return `numpy.sin` of every element."""
        return self._elementwise(np.sin)

    def sinh(self) -> Self:
        """Return `numpy.sinh` of every element."""
        return self._elementwise(np.sinh)

    def sqrt(self) -> Self:
        """Return `numpy.sqrt` of every element."""
        return self._elementwise(np.sqrt)

    def tan(self) -> Self:
        """Return `numpy.tan` of every element."""
        return self._elementwise(np.tan)

    def tanh(self) -> Self:
        """Return `numpy.tanh` of every element."""
        return self._elementwise(np.tanh)

    def trunc(self) -> Self:
        """Return `numpy.trunc` of every element."""
        return self._elementwise(np.trunc)
