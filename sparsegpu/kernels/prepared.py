"""Calls like an earlier one: checked then, packed but for the addresses of their arrays.

Such a call costs the host a look-up, its addresses and the launch. Where more is to be done (a
recorder, another device, an allocation while a stream is captured) it is planned as the first one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import product
from typing import Any

from .._arrays import is_captured
from .._locks import fork_safe
from ..engines.cuda.runtime import launch as door
from ..engines.cuda.runtime.device import current_device
from .memory import extent


class Prepared:
    """A launch with arrays of some shapes, dtypes and strides, wherever they are.

    Parameters
    ----------
    work : Launch
        Nobody else has it.
    args : tuple
        Of the call, in the order of the parameters.
    arrays : sequence of int
        Which of them are arrays.
    places : sequence of int
        Which parameters of the launch are these arrays' addresses.
    written : sequence of int
        Which arguments the functional form copies; each is in C order without gaps.
    """

    __slots__ = ("_device", "_lock", "_near", "_places", "_work", "_written")

    def __init__(
        self,
        work: Any,
        args: tuple,
        arrays: Sequence[int],
        places: Sequence[int],
        written: Sequence[int],
    ):
        self._work, self._written = work, tuple(written)
        self._places = [(i, work.parameter(p)) for i, p in zip(arrays, places, strict=True)]
        self._device = args[arrays[0]].data.device_id
        self._lock = fork_safe(threading.Lock())  # of the places: there is one buffer
        # How far, in bytes, an array begins from a written one that it overlaps.
        self._near = []
        for i, j in product(written, arrays):
            if i != j:
                (low, high), (other_low, other_high) = (_span(args[n]) for n in (i, j))
                self._near.append((i, j, low - other_high, high - other_low))

    def inplace(self, args: tuple) -> bool:
        """Launch on the arguments and return True; False where that is not all there is to do."""
        if door.is_traced() or current_device() != self._device:
            return False
        self._launch(args, door.current_stream())
        return True

    def functional(self, args: tuple) -> Any:
        """Launch on copies of what is written and return these, None where more is to be done."""
        if door.is_traced() or current_device() != self._device:
            return None
        stream = door.current_stream()
        if is_captured(stream) or self._overlap(args):
            return None
        ready, results = list(args), []
        for i in self._written:
            ready[i] = args[i].copy()
            results.append(ready[i])
        self._launch(ready, stream)
        return results[0] if len(results) == 1 else tuple(results)

    def _overlap(self, args: tuple) -> bool:
        """Return whether an argument may share memory with one that is written."""
        for i, j, below, above in self._near:
            if below < args[j].data.ptr - args[i].data.ptr < above:
                return True
        return False

    def _launch(self, args: Sequence[Any], stream: int) -> None:
        with self._lock:
            for i, place in self._places:
                place.value = args[i].data.ptr
            door.enqueue((self._work,), stream, True)


def _span(array: Any) -> tuple[int, int]:
    """Return an array's first byte and the one behind its last, from its first element on."""
    low, high = extent(array)
    return low - array.data.ptr, high - array.data.ptr
