"""Several device arrays in one allocation, of which kernels only need the addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

from .runtime.launch import Memset

_ALIGNMENT = 16  # a power of two


class Arena:
    """Uninitialised memory: addresses of its parts at once, arrays only when they are asked for.

    Making a few arrays takes the host longer than a short kernel takes the device, and kernels
    only need their addresses.

    Parameters
    ----------
    xp : module
        CuPy.
    *parts : (int, dtype)
        Length and dtype of each.

    Attributes
    ----------
    addresses : list of int
    """

    __slots__ = ("_begins", "_memory", "_parts", "_xp", "addresses")

    def __init__(self, xp: Any, *parts: tuple[int, np.dtype]):
        self._xp, self._parts = xp, parts
        self._begins, end = [], 0
        for n, dtype in parts:
            self._begins.append(end)
            end += (n * dtype.itemsize + _ALIGNMENT - 1) & -_ALIGNMENT
        self._memory = xp.cuda.alloc(end)  # of which no array is made
        first = self._memory.ptr
        self.addresses = [first + begin for begin in self._begins]

    def cleared(self, i: int) -> Memset:
        """Return the work that sets the first number of a part to zero."""
        return Memset(self.addresses[i], self._parts[i][1].itemsize)

    def array(self, i: int) -> Any:
        """Return a part as an array."""
        n, dtype = self._parts[i]
        return self._xp.ndarray((n,), dtype, self._memory + self._begins[i])


class Arrays:
    """Arrays that were made one by one, with the interface of `Arena`."""

    __slots__ = ("_arrays",)

    def __init__(self, *arrays: Any):
        self._arrays = arrays

    @property
    def addresses(self) -> list[int]:
        """Their addresses."""
        return [array.data.ptr for array in self._arrays]

    def array(self, i: int) -> Any:
        """Return one of them."""
        return self._arrays[i]
