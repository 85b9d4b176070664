"""Calls like an earlier one: checked then, packed but for the addresses of their arrays.

Such a call costs the host a look-up, its addresses and the launch. Where more is to be done (a
recorder, another device, an allocation while a stream is captured) it is planned as the first one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from .._arrays import is_captured
from ..engines import chosen_engine
from ..engines.cuda.runtime import launch as door
from ..engines.cuda.runtime.copy_bytes import CopyBytes
from . import build, guard, winners
from .memory import array_type, extent
from .tensor_map import TensorMap

#: A launch, what is to be known of each array (first where its address goes), and the copies.
_Ready = tuple[Any, list[tuple], list[CopyBytes]]


class Prepared:
    """Launches with arrays of some shapes, dtypes and strides, wherever they are.

    Parameters
    ----------
    args : tuple
        Of the call, in the order of the parameters.
    places : mapping of int to int
        Which of them are arrays, and which parameters of the launch are their addresses.
    written : sequence of int
        Which arguments the functional form copies; each is in C order without gaps, and not empty.
    key : tuple
        What the call depends on (`Planned._key`).
    """

    __slots__ = (
        *("_arrays", "_count", "_device", "_engine", "_generation", "_idle", "_near"),
        *("_current_device", "_current_stream", "_numbers", "_written"),
    )

    def __init__(self, args: tuple, places: Mapping[int, int], written: Sequence[int], key: tuple):
        _, _, self._engine, self._generation, _ = key
        self._count = len(args)
        self._arrays, self._numbers = [], []
        for i, value in enumerate(args):
            if i in places:
                # CuPy's flag, which costs less to read, and the shape tell such an array's strides.
                flagged = value._c_contiguous and value.size and 1 not in value.shape
                strides = None if flagged else value.strides
                facts = type(value), value.dtype, value.shape, strides
                self._arrays.append((places[i], i, *facts))
            else:
                self._numbers.append((i, type(value), _told(value)))
        self._written = [(list(places).index(i), args[i].nbytes) for i in written]
        self._device = next(args[i].data.device_id for i in places)
        self._idle: list[_Ready] = []
        # CuPy's own, without a call of Python around each.
        cuda = sys.modules["cupy"].cuda
        self._current_device = cuda.runtime.getDevice
        self._current_stream = cuda.get_current_stream
        # How far, in bytes, an array begins from a written one that it overlaps.
        self._near = []
        for i, j in product(written, places):
            if i != j:
                (low, high), (other_low, other_high) = (_span(args[n]) for n in (i, j))
                self._near.append((i, j, low - other_high, high - other_low))

    def is_used_up(self) -> bool:
        """Return whether no launch is left: other calls are using all there are."""
        return not self._idle

    def add(self, work: Any) -> None:
        """Keep a `Launch` that nobody else has: as many are used as threads call at a time."""
        self._idle.append((work, [(work.parameter(n), *rest) for n, *rest in self._arrays], []))

    def run(self, args: tuple, alike: bool) -> list[Any] | None:
        """Launch on the arguments, or on copies of what is written, and return these copies.

        None where that is not all there is to do. Every array is asked for everything at once, in
        one function: this is most of what a call takes.

        Parameters
        ----------
        args : tuple
        alike : bool
            Whether the call has this one's key; else what a key tells is compared here.
        """
        device = self._device
        if door.recorders() or self._current_device() != device:
            return None
        if not alike and (
            guard.checking() is not None
            or chosen_engine() != self._engine
            or winners.generation != self._generation
            or len(args) != self._count
        ):
            return None
        try:
            launch = self._idle.pop()  # this thread's from now on: its addresses are written to
        except IndexError:
            return None
        results: list[Any] | None = None
        work, arrays, _ = launch
        for place, i, kind, dtype, shape, strides in arrays:
            array = args[i]
            if not alike and (
                type(array) is not kind
                or array.dtype is not dtype
                or array.shape != shape
                or (not array._c_contiguous if strides is None else array.strides != strides)
            ):
                break
            memory = array.data
            if memory.device_id != device:
                break
            place.value = memory.ptr
        else:
            for i, kind, told in () if alike else self._numbers:
                value = args[i]
                if type(value) is not kind or (value or repr(value)) != told:
                    break
            else:
                stream = self._current_stream().ptr
                results = self._copied(args, launch, stream) if self._written else []
                if results is not None:
                    work.on(stream)
        self._idle.append(launch)
        return results

    def _copied(self, args: tuple, launch: _Ready, stream: int) -> list[Any] | None:
        """Copy what is written, for the launch to work on, and return it; None where it cannot."""
        if is_captured(stream) or self._overlap(args):
            return None
        _, arrays, copies = launch
        if not copies:
            # Not before: a kernel is loaded, and that never while the stream is captured.
            by_kernel = build.can_compile()
            copies += [CopyBytes(size, by_kernel) for _, size in self._written]
        new, results = array_type(), []
        for (number, _), copy in zip(self._written, copies):
            place, _, _, dtype, shape, _ = arrays[number]
            result = new(shape, dtype)
            source, target = place.value, result.data.ptr
            copy.on(target, source, stream)
            place.value = target
            results.append(result)
        return results

    def _overlap(self, args: tuple) -> bool:
        """Return whether an argument may share memory with one that is written."""
        for i, j, below, above in self._near:
            if below < args[j].data.ptr - args[i].data.ptr < above:
                return True
        return False


def _span(array: Any) -> tuple[int, int]:
    """Return an array's first byte and the one behind its last, from its first element on."""
    low, high = extent(array)
    return low - array.data.ptr, high - array.data.ptr


def _told(value: Any) -> Any:
    """Return what a value that is no array is compared with; zeros of both signs differ."""
    if isinstance(value, TensorMap):
        return object()  # its memory is packed with the launch, so that only the key tells
    return value or repr(value)
