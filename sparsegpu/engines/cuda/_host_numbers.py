"""Numbers in pinned host memory that a kernel writes: nothing is copied to read them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from .runtime.launch import pointer

_COUNT = 5  # as many as the kernel that has most to tell writes
_Numbers = ctypes.c_int64 * _COUNT
_ZEROS = (0,) * _COUNT

# Never freed: a call that is interrupted gives nothing back, since a kernel may yet write there.
_memory: list[Any] = []


class HostNumbers:
    """Numbers that are one call's alone, a `launch.Work` that sets them to zero.

    It is submitted before the kernel, and may be submitted again after each `wait`.

    Attributes
    ----------
    pointer : bytes
        The kernel's argument, of int64. Threads that write the same number write the same value.
    """

    __slots__ = ("_numbers", "_stream", "pointer")

    source = ""

    # What no call is using. Allocating pinned memory takes longer than a short kernel. (Of the
    # class, since a module's names may be gone when the last numbers are given back.)
    _free: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        self._stream: int | None = 0  # not None: there is nothing to give back yet
        try:
            self._numbers = self._free.pop()  # one step for all threads
        except IndexError:
            self._numbers = _allocated()
        self._stream = None
        self.pointer = pointer(ctypes.addressof(self._numbers))

    def on(self, stream: int) -> None:
        """Set all to zero for a kernel that is about to be launched on this stream."""
        self._stream = stream
        self._numbers[:] = _ZEROS

    def wait(self) -> list[int]:
        """Wait for that stream and return the numbers."""
        _synchronize()(self._stream)
        self._stream = None
        return self._numbers[:]

    def __del__(self) -> None:
        if self._stream is None:
            self._free.append(self._numbers)


@cache
def _synchronize() -> Callable[[int | None], None]:
    from cupy.cuda import runtime

    return runtime.streamSynchronize


def _allocated() -> Any:
    import cupy

    memory = cupy.cuda.alloc_pinned_memory(ctypes.sizeof(_Numbers))
    _memory.append(memory)
    return _Numbers.from_address(memory.ptr)
