"""Host values as an engine's own, laid out in memory in every way there is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

import sparsegpu
from sparsegpu.testing import to_host

from .draws import BFLOAT16, FP8, Bsr, Draws, TwoOfFour

_WRITABLE = ("rows", "columns", "strided", "backwards", "upside down", "window")
LAYOUTS = (*_WRITABLE, "repeated", "misaligned", "read only")


class Machine:
    """An engine and its array library."""

    def __init__(self, engine: str):
        self.engine, self.on_gpu = engine, engine == "cuda"
        if self.on_gpu:
            import cupy

            self.xp = cupy
        else:
            self.xp = np

    def chosen(self) -> AbstractContextManager:
        return sparsegpu.use_engine(self.engine)

    def settle(self) -> None:
        """Wait for the device: an error that sticks to it is raised here."""
        if self.on_gpu:
            self.xp.cuda.Device().synchronize()

    def give(self, value: Any, draws: Draws, *, writable: bool = False) -> Any:
        """Return a host value as the engine holds it; what is no operand stays as it is."""
        if isinstance(value, Bsr):
            parts = (value.data, value.indices, value.indptr)
            bsr = sparsegpu.bsr_array(
                tuple(self.give(part, draws) for part in parts), shape=value.shape
            )
            packed = value.packed and value.dtype.kind == "b"
            return sparsegpu.BlockMask.from_bsr(bsr) if packed else bsr
        if isinstance(value, TwoOfFour):
            dense = self._moved(value.matrix)
            return sparsegpu.to_semi_structured(dense, pad=True)
        known = isinstance(value, np.ndarray) and (
            value.dtype.kind in "biufc" or value.dtype in {BFLOAT16, FP8}
        )
        if self.on_gpu and known:
            known = value.dtype.char not in "gG"  # CuPy has no long double
        if known and type(value) is np.ndarray and not value.ndim:
            return self._moved(value)
        if known and type(value) is np.ndarray:
            layout = draws.choice(_WRITABLE if writable else LAYOUTS)
            return self._laid_out(value, layout)
        return value

    def _moved(self, array: np.ndarray) -> Any:
        if not self.on_gpu:
            return array.copy()
        return self.xp.asarray(array.view(np.uint8) if array.dtype == FP8 else array)

    def _laid_out(self, array: np.ndarray, layout: str) -> Any:
        if layout == "columns" and array.ndim > 1:
            transposed = np.ascontiguousarray(array.swapaxes(-1, -2))
            return self._moved(transposed).swapaxes(-1, -2)
        if layout == "strided":
            wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
            wide[..., 1::2] = array
            return self._moved(wide)[..., 1::2]
        if layout == "backwards":
            every = tuple(slice(None, None, -1) for _ in array.shape)
            return self._moved(np.ascontiguousarray(array[every]))[every]
        if layout == "upside down" and array.ndim > 1:  # the last axis as it is
            return self._moved(np.ascontiguousarray(array[..., ::-1, :]))[..., ::-1, :]
        if layout == "window" and array.ndim > 1:  # rows further apart, from any element on
            wide = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
            wide[..., 1:-2] = array
            return self._moved(wide)[..., 1:-2]
        if layout == "repeated":
            once = array
            for axis in range(array.ndim):
                one = once.take([0], axis) if once.shape[axis] else once
                once = one if np.array_equal(np.broadcast_to(one, array.shape), array) else once
            return self.xp.broadcast_to(self._moved(np.ascontiguousarray(once)), array.shape)
        if layout == "misaligned" and not self.on_gpu:
            memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
            moved = memory.view(array.dtype).reshape(array.shape)
            moved[...] = array
            return moved
        moved = self._moved(array)
        if layout == "read only" and not self.on_gpu:
            moved.flags.writeable = False
        return moved


def contents(given: Any) -> Any:
    """Return what an argument holds, byte by byte, with the memory around a strided view."""
    if isinstance(given, sparsegpu.bsr_array):
        return tuple(contents(part) for part in (given.data, given.indices, given.indptr))
    if isinstance(given, sparsegpu.BlockMask):
        return tuple(contents(x) for x in (given.kind, given.bits, given.indices, given.indptr))
    if isinstance(given, sparsegpu.SemiStructuredArray):
        return contents(given.packed), contents(given.meta)
    if not (hasattr(given, "dtype") and hasattr(given, "strides")):
        return None
    base = given
    while isinstance(getattr(base, "base", None), type(given)):
        base = base.base
    host = to_host(base)
    return host.tobytes() if host.dtype != object else None
