"""Host side of ``copy_bytes``: copies within a device that cost the host one launch."""

from __future__ import annotations

import numpy as np

from ...._math import ceil_div
from .device import multiprocessors
from .launch import NULL, Launch, copy, kernel

_THREADS = 256
#: Thread blocks of a multiprocessor, at most: they fill it.
_BLOCKS = 4
_VECTOR = 16
#: Bytes of a copy, at most, whose time on the host counts beside that on the device.
LARGEST = 4 << 20


class CopyBytes:
    """A copy of some number of bytes, prepared once, that whoever has it alone may repeat.

    Parameters
    ----------
    size : int
        In bytes, at least one.
    by_kernel : bool
        Whether a kernel may be compiled; else CUDA copies, as it does what is large or unaligned.
    """

    __slots__ = ("_launch", "_size", "_source", "_target")

    def __init__(self, size: int, by_kernel: bool = True):
        self._size = size
        self._launch: Launch | None = None
        if by_kernel and size <= LARGEST:
            blocks = min(ceil_div(size, _VECTOR * _THREADS), _BLOCKS * multiprocessors())
            args = NULL, NULL, np.int64(size)
            self._launch = Launch(kernel("copy_bytes"), (blocks,), (_THREADS,), args)
            self._target, self._source = map(self._launch.parameter, range(2))

    def on(self, target: int, source: int, stream: int) -> None:
        """Enqueue the copy on a stream; no recorder is told of it."""
        if self._launch is None or (target | source) % _VECTOR:
            copy(target, source, self._size, stream)
            return
        self._target.value, self._source.value = target, source
        self._launch.on(stream)
