"""Which arrays share memory, by their addresses and strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._arrays import is_cupy


def byte_bounds(array: Any) -> tuple[int, int]:
    """Return the half-open range of addresses that a strided array touches."""
    start = array.data.ptr if is_cupy(array) else array.__array_interface__["data"][0]
    if array.size == 0:
        return start, start
    low, high = start, start + array.itemsize
    for n, s in zip(array.shape, array.strides):
        if s < 0:
            low += (n - 1) * s
        else:
            high += (n - 1) * s
    return low, high


def overlapping(out: Any, arrays: dict[str, Any]) -> str | None:
    """Return the name of the first array that shares memory with ``out``; None is skipped."""
    on_device = is_cupy(out)
    low, high = byte_bounds(out) if on_device else (0, 0)
    for name, array in arrays.items():
        if array is None:
            continue
        if not on_device:
            if np.shares_memory(out, array):
                return name
            continue
        first, last = byte_bounds(array)
        if first < high and low < last and interleaved(out, array):
            return name
    return None


def interleaved(a: Any, b: Any, max_work: Any = None) -> bool:
    """Return whether device arrays share an element: NumPy decides from addresses and strides."""

    class _Layout:
        def __init__(self, array: Any):
            self.__array_interface__ = {
                "shape": array.shape,
                "strides": array.strides,
                "typestr": f"|V{array.itemsize}",
                "data": (array.data.ptr, False),
                "version": 3,
            }

    return np.shares_memory(np.asarray(_Layout(a)), np.asarray(_Layout(b)), max_work=max_work)


def overlaps_itself(array: Any) -> bool:
    """Return whether two elements of a strided array share memory."""
    reach, nested = array.itemsize, True
    for stride, n in sorted((abs(s), n) for n, s in zip(array.shape, array.strides) if n > 1):
        nested = nested and stride >= reach
        reach += (n - 1) * stride
    if nested or array.size == 0:
        return False
    # Strides that do not nest, which slicing never makes: compare the offsets of all elements.
    offsets = np.zeros((), np.int64)
    for n, stride in zip(array.shape, array.strides):
        offsets = np.add.outer(offsets, np.arange(n, dtype=np.int64) * stride)
    return bool((np.diff(np.sort(offsets, axis=None)) < array.itemsize).any())


def same_memory(a: Any, b: Any) -> bool:
    """Return whether two arrays are the same view: memory, shape, strides and dtype."""
    return a is b or (
        a.shape == b.shape
        and a.strides == b.strides
        and a.dtype == b.dtype
        and byte_bounds(a)[0] == byte_bounds(b)[0]
    )
