"""Where arrays lie, of NumPy and of CuPy alike."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from .._arrays import is_cupy


def is_array(value: Any) -> bool:
    """Return whether something is an array with memory of its own, not a number."""
    return is_cupy(value) or isinstance(value, np.ndarray)


def array_type() -> Any:
    """Return CuPy's class of arrays, None where CuPy is not imported."""
    cupy = sys.modules.get("cupy")
    return None if cupy is None else cupy.ndarray


def library(array: Any) -> Any:
    """Return NumPy or CuPy, whose array it is."""
    if not is_cupy(array):
        return np
    import cupy

    return cupy


def address(array: Any) -> int:
    """Return where an array's first element is."""
    return array.data.ptr if is_cupy(array) else array.__array_interface__["data"][0]


def extent(array: Any) -> tuple[int, int]:
    """Return the first byte of an array's elements and the one behind the last."""
    start = address(array)
    if array.size == 0:
        return start, start
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    return start + low, start + high + array.itemsize


def view_in(memory: Any, start: int, like: Any, low: int) -> Any:
    """Return an array like another in other memory, whose byte ``start`` is that at ``low``."""
    offset = start + address(like) - low
    if is_cupy(memory):
        return library(memory).ndarray(
            like.shape, like.dtype, memptr=memory.data + offset, strides=like.strides
        )
    return np.ndarray(like.shape, like.dtype, memory, offset, like.strides)


def bytes_at(low: int, high: int, owner: Any) -> Any:
    """Return the bytes between two addresses of an array's memory, not copied."""
    if not is_cupy(owner):
        return np.ctypeslib.as_array((ctypes.c_ubyte * (high - low)).from_address(low))
    import cupy

    memory = cupy.cuda.UnownedMemory(low, high - low, owner, owner.data.device_id)
    return cupy.ndarray((high - low,), np.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0))
