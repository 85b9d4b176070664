"""Calls like an earlier one: checked then, packed but for the addresses of their arrays.

Such a call costs the host a look-up, its addresses and the launch. Where more is to be done (a
recorder, another device, an allocation while a stream is captured) it is planned as the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from .._arrays import is_captured
from ..engines.cuda.runtime import launch as door
from ..engines.cuda.runtime.device import current_device
from .memory import array_type, extent


class Prepared:
    """Launches with arrays of some shapes, dtypes and strides, wherever they are.

    Parameters
    ----------
    args : tuple
        Of the call, in the order of the parameters.
    arrays : sequence of int
        Which of them are arrays.
    places : sequence of int
        Which parameters of the launch are these arrays' addresses.
    written : sequence of int
        Which arguments the functional form copies; each is in C order without gaps, and not empty.
    """

    __slots__ = ("_arrays", "_copied", "_device", "_idle", "_near", "_places")

    def __init__(
        self, args: tuple, arrays: Sequence[int], places: Sequence[int], written: Sequence[int]
    ):
        self._arrays, self._places = arrays, places
        self._copied = [(i, args[i].shape, args[i].dtype, args[i].nbytes) for i in written]
        self._device = args[arrays[0]].data.device_id
        self._idle: list[tuple[Any, list[tuple[int, Any]]]] = []
        # How far, in bytes, an array begins from a written one that it overlaps.
        self._near = []
        for i, j in product(written, arrays):
            if i != j:
                (low, high), (other_low, other_high) = (_span(args[n]) for n in (i, j))
                self._near.append((i, j, low - other_high, high - other_low))

    def is_used_up(self) -> bool:
        """Return whether no launch is left: other calls are using all there are."""
        return not self._idle

    def add(self, work: Any) -> None:
        """Keep a `Launch` that nobody else has: as many are used as threads call at a time."""
        places = zip(self._arrays, self._places, strict=True)
        self._idle.append((work, [(i, work.parameter(place)) for i, place in places]))

    def inplace(self, args: tuple) -> bool:
        """Launch on the arguments and return True; False where that is not all there is to do."""
        if door.is_traced() or current_device() != self._device:
            return False
        return self._launch(args, door.current_stream())

    def functional(self, args: tuple) -> Any:
        """Launch on copies of what is written and return these, None where more is to be done."""
        if door.is_traced() or current_device() != self._device:
            return None
        stream = door.current_stream()
        if is_captured(stream) or self._overlap(args):
            return None
        new, ready, results = array_type(), list(args), []
        for i, shape, dtype, nbytes in self._copied:
            ready[i] = new(shape, dtype)
            door.copy(ready[i].data.ptr, args[i].data.ptr, nbytes, stream)
            results.append(ready[i])
        if not self._launch(ready, stream):
            return None
        return results[0] if len(results) == 1 else tuple(results)

    def _overlap(self, args: tuple) -> bool:
        """Return whether an argument may share memory with one that is written."""
        for i, j, below, above in self._near:
            if below < args[j].data.ptr - args[i].data.ptr < above:
                return True
        return False

    def _launch(self, args: Sequence[Any], stream: int) -> bool:
        """Launch on the arguments and return True; False where other threads use all launches."""
        try:
            launch = self._idle.pop()  # this thread's from now on: its addresses are written to
        except IndexError:
            return False
        work, places = launch
        for i, place in places:
            place.value = args[i].data.ptr
        work.on(stream)
        self._idle.append(launch)
        return True


def _span(array: Any) -> tuple[int, int]:
    """Return an array's first byte and the one behind its last, from its first element on."""
    low, high = extent(array)
    return low - array.data.ptr, high - array.data.ptr
