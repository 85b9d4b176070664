"""What a call enqueues, as one unit: its launches, and the memory that they work in.

Every operation on a device runs within a `Submission` (``ops/_common.on_device``). It sees to what
launches need of the calling thread: a device and a context that are current. From the first
`workspace` on it holds the lock of that memory, so that no other thread's launches on it come
between the call's own. While the stream is captured, all that is allocated belongs to the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from . import capture as captures
from .launch import make_context_current
from .workspace import StreamWorkspace, give_back_external, place_of, workspace_on

_LEGACY = 1  # cudaStreamLegacy; it and 0 are never captured

_thread = threading.local()


class Submission:
    """One call's work on a device, a context manager.

    One inside another is a part of it, unless it has an operand or a device of its own.

    Parameters
    ----------
    device : int
    kept : dict or None
        Where the sparse operand keeps its workspaces (`workspace.workspace_on`).

    Attributes
    ----------
    captured : bool
        Whether the stream is being captured into a CUDA graph.
    """

    __slots__ = (
        *("_device", "_kept", "_outer", "_stream", "_taken", "_whole", "_workspace"),
        *("_contexts", "captured"),
    )

    def __init__(self, device: int, kept: dict[int, StreamWorkspace] | None = None):
        self._device, self._kept = device, kept
        self._workspace: StreamWorkspace | None = None  # locked by this call
        self._taken = 0
        self._whole = self
        self._contexts: list[AbstractContextManager] = []

    def __enter__(self) -> Submission:
        try:
            return self._entered()
        except BaseException:
            self._unwind()
            raise

    def _entered(self) -> Submission:
        import cupy

        if cupy.cuda.runtime.getDevice() != self._device:
            self._enter(cupy.cuda.Device(self._device))
        make_context_current(self._device)
        outer: Submission | None = getattr(_thread, "submission", None)
        self._outer, self._stream = outer, cupy.cuda.get_current_stream()
        self.captured = is_captured(self._stream.ptr)
        if outer is not None and self._is_part_of(outer):
            self._whole = outer._whole
        if self.captured and (outer is None or not outer.captured):
            allocator = captures.capture_on(self._stream.ptr).keeping(cupy.cuda.get_allocator())
            self._enter(cupy.cuda.using_allocator(allocator))
        _thread.submission = self
        return self

    def _is_part_of(self, outer: Submission) -> bool:
        same = self._kept is None or self._kept is outer._whole._kept
        return outer._device == self._device and (same or self.captured)

    def _enter(self, context: AbstractContextManager) -> None:
        context.__enter__()
        self._contexts.append(context)

    def _unwind(self) -> None:
        while self._contexts:
            self._contexts.pop().__exit__(None, None, None)

    def __exit__(self, *error: Any) -> None:
        _thread.submission = self._outer
        try:
            if self._workspace is not None:
                self._leave(self._workspace)
        finally:
            self._unwind()

    def _leave(self, workspace: StreamWorkspace) -> None:
        self._workspace = None
        try:
            if not self.captured:
                workspace.used(self._stream.ptr)
        finally:
            workspace.lock.release()

    @property
    def exclusive(self) -> bool:
        """Whether the call works in memory that calls share."""
        return self._whole._workspace is not None

    def chunk(self, nbytes: int) -> Any:
        """Do what `workspace` does, for this call."""
        whole = self._whole
        if whole._workspace is None:
            found = whole.kept_on_stream()
            if found is None:
                import cupy

                return cupy.empty(nbytes, dtype="uint8")
            found.lock.acquire()
            whole._workspace = found
        given = whole._workspace.chunk(whole._taken, nbytes)
        whole._taken += 1
        if whole._workspace.external and whole._kept is not None:
            give_back_external(whole._kept, whole._workspace)
        return given

    def kept_on_stream(self) -> StreamWorkspace | None:
        """Return what is kept for the stream: of the capture, else of the operand."""
        if self.captured:
            return captures.capture_on(self._stream.ptr).workspace(place_of(self._stream))
        kept = self._whole._kept
        return None if kept is None else workspace_on(kept, self._stream)


def current() -> Submission | None:
    """Return the submission that this thread is in."""
    return getattr(_thread, "submission", None)


def workspace(nbytes: int) -> Any:
    """Return device memory for the current call, a uint8 array with undefined contents.

    It is the call's until its launches are enqueued. Calls of one operand on one stream share it,
    and what they keep to be repeated holds it; in a CUDA graph it is the graph's. Outside of a
    submission, or without an operand, it is an array like any other.

    Returns
    -------
    cupy.ndarray of uint8
        Aligned to 256 bytes (CuPy's allocation granularity is 512).
    """
    submission = current()
    if submission is not None:
        return submission.chunk(nbytes)
    import cupy

    return cupy.empty(nbytes, dtype="uint8")


def is_captured(stream: int) -> bool:
    """Return whether a stream is being captured into a CUDA graph."""
    return stream > _LEGACY and _asks_the_runtime()(stream)


@cache
def _asks_the_runtime() -> Callable[[int], bool]:
    from cupy.cuda import runtime

    return runtime.streamIsCapturing
