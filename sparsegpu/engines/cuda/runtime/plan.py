"""What a pattern keeps for the kernels: workspace, one buffer a stream.

Workspace belongs to the pattern rather than to a call, because a CUDA graph captured from a call
holds on to the address: a buffer given back to CuPy's pool would be someone else's by the time
the graph runs again.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

from ....pattern import Pattern


class Workspaces:
    """Fixed-size device buffers of one pattern, device and purpose, one for each stream."""

    __slots__ = ("_kept", "_lock", "nbytes")

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        # The stream is kept with its buffer: the address of a destroyed stream may be given to a
        # new one while the old one's work is still running on the buffer.
        self._kept: dict[int, tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def get(self, stream: Any) -> Any:
        """Return the buffer of a stream, a uint8 array made on the first call."""
        kept = self._kept.get(stream.ptr)
        if kept is None:
            import cupy

            with self._lock:
                kept = self._kept.get(stream.ptr)
                if kept is None:
                    kept = stream, cupy.empty(self.nbytes, dtype=cupy.uint8)
                    self._kept[stream.ptr] = kept
        return kept[1]


def workspace(pattern: Pattern, key: Hashable, nbytes: int) -> Any:
    """Return ``nbytes`` of device memory for the current stream, kept with the pattern.

    Contents are undefined at the start of every call; calls on one stream may share it, calls on
    two streams never do.

    Parameters
    ----------
    pattern : Pattern
        On the GPU.
    key : hashable
        The purpose. Everything that changes the size (N, dtype, configuration) is part of it,
        besides ``nbytes`` itself.
    nbytes : int
        Fixed for this key.

    Returns
    -------
    cupy.ndarray of uint8
        Aligned to 256 bytes (CuPy's allocation granularity is 512).
    """
    import cupy

    device = pattern.device
    kept = pattern.memo(("workspace", device, key, nbytes), lambda: Workspaces(nbytes))
    return kept.get(cupy.cuda.get_current_stream())


def workspace_in(kept: dict[Hashable, Workspaces], key: Hashable, nbytes: int) -> Any:
    """Do what `workspace` does for an operand that is no pattern and has a dict for its own."""
    import cupy

    found = kept.setdefault((key, nbytes), Workspaces(nbytes))  # atomic
    return found.get(cupy.cuda.get_current_stream())
