"""Numbers in pinned host memory that a kernel writes: nothing is copied to read them."""

from __future__ import annotations

import ctypes
from typing import Any

from .runtime.launch import pointer

_COUNT = 5  # as many as the kernel that has most to tell writes
_Numbers = ctypes.c_int64 * _COUNT

# What no call is using. Allocating pinned memory takes longer than a short kernel.
_free: list[HostNumbers] = []
# Never freed: a call that is interrupted gives nothing back, since a kernel may yet write there.
_memory: list[Any] = []


class HostNumbers:
    """The numbers of one call, from `host_numbers` until `wait`.

    Attributes
    ----------
    pointer : bytes
        The kernel's argument, of int64. Threads that write the same number write the same value.
    """

    __slots__ = ("_numbers", "_stream", "pointer")

    def __init__(self) -> None:
        import cupy

        memory = cupy.cuda.alloc_pinned_memory(ctypes.sizeof(_Numbers))
        _memory.append(memory)
        self._numbers = _Numbers.from_address(memory.ptr)
        self.pointer = pointer(memory.ptr)

    def _cleared(self) -> HostNumbers:
        """Set all to zero for a kernel that is about to be launched on CuPy's current stream."""
        import cupy

        self._stream = cupy.cuda.get_current_stream()
        ctypes.memset(self._numbers, 0, ctypes.sizeof(self._numbers))
        return self

    def wait(self) -> list[int]:
        """Wait for that stream, give the numbers back and return them."""
        self._stream.synchronize()
        numbers = self._numbers[:]
        _free.append(self)
        return numbers


def host_numbers() -> HostNumbers:
    """Return zeros that are this call's alone."""
    try:
        numbers = _free.pop()  # one step for all threads
    except IndexError:
        numbers = HostNumbers()
    return numbers._cleared()
