"""A call as one unit: what it submits, and the memory that its kernels work in.

Every operation on a device runs within a `Submission` (``ops/_common.on_device``), which makes the
device current. From its first request for `workspace` until it ends, a submission holds the lock of
that memory, so that kernels of other calls never come between its own. While the stream is
captured, everything that is allocated belongs to the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from types import ModuleType
from typing import Any

from ...._arrays import is_captured
from ...._locks import acquire
from . import capture as captures
from .launch import Recorder, recording
from .workspace import StreamWorkspace, place_of, reclaim_external, workspace_on

_thread = threading.local()


class Submission:
    """The work of one call on a device, a context manager.

    A submission inside another is a part of it, unless it has another operand, stream or device.

    Parameters
    ----------
    device : int
    owner : object or None
        The sparse operand's pattern, or what holds its halves: workspaces are kept in its ``kept``
        (`workspace.workspace_on`). A capture keeps it alive.
    recorder : callable, optional
        Told of what is submitted meanwhile (`launch.recording`).

    Attributes
    ----------
    borrows : bool
        Whether `workspace` gave it memory.
    """

    __slots__ = (
        *("_capture", "_contexts", "_device", "_outer", "_owner", "_stream", "_taken"),
        *("_within", "_workspace", "borrows", "recorder"),
    )

    def __init__(self, device: int, owner: Any = None, recorder: Recorder | None = None):
        self._device, self._owner, self.recorder = device, owner, recorder
        self.borrows = False
        self._workspace: StreamWorkspace | None = None  # locked by this call
        self._taken = 0
        self._within: Submission | None = None
        self._contexts: list[AbstractContextManager] | None = None

    def __enter__(self) -> Submission:
        cuda = _cuda()
        if cuda.runtime.getDevice() != self._device:
            self._enter(cuda.Device(self._device))
        try:
            outer, stream = current(), cuda.get_current_stream()
            self._outer = outer
            self._stream = stream
            self._capture = captures.capture_on(stream.ptr) if is_captured(stream.ptr) else None
            if outer is not None and self._is_part_of(outer):
                self._within = outer
            if self._capture is None:
                captures.reclaim_next()
            else:
                self._capture.keep(self._owner)
                if outer is None or outer._capture is not self._capture:
                    allocator = self._capture.keeping(cuda.get_allocator())
                    self._enter(cuda.using_allocator(allocator))
            if self.recorder is not None:
                self._enter(recording(self.recorder))
        except BaseException:
            self._unwind()
            raise
        _thread.submission = self
        return self

    def _is_part_of(self, outer: Submission) -> bool:
        owner = self._owner is None or self._owner is outer._whole._owner or self.captured
        stream = self._stream.ptr == outer._stream.ptr
        return owner and stream and outer._device == self._device

    def _enter(self, context: AbstractContextManager) -> None:
        context.__enter__()
        self._contexts = [*(self._contexts or ()), context]

    def _unwind(self) -> None:
        while self._contexts:
            self._contexts.pop().__exit__(None, None, None)

    def __exit__(self, *error: Any) -> None:
        _thread.submission = self._outer
        try:
            if self._workspace is not None:
                self._leave(self._workspace)
        finally:
            if self._contexts:
                self._unwind()

    def _leave(self, workspace: StreamWorkspace) -> None:
        self._workspace = None
        try:
            if not self.captured:
                workspace.used(self._stream.ptr)
        finally:
            workspace.lock.release()

    @property
    def captured(self) -> bool:
        """Whether the stream is being captured into a CUDA graph."""
        return self._capture is not None

    @property
    def _whole(self) -> Submission:
        """The call that this is, or is a part of."""
        return self if self._within is None else self._within._whole

    @property
    def exclusive(self) -> bool:
        """Whether the call works in memory that other calls use, too."""
        return self._whole._workspace is not None

    def chunk(self, nbytes: int) -> Any:
        """Do what `workspace` does, for this call."""
        self.borrows, whole = True, self._whole
        if whole._workspace is None:
            whole._workspace = whole._locked()
            if whole._workspace is None:
                import cupy

                return cupy.empty(nbytes, dtype="uint8")
        given = whole._workspace.chunk(whole._taken, nbytes)
        whole._taken += 1
        if whole._workspace.external and whole._owner is not None:
            reclaim_external(whole._owner.kept, whole._workspace, whole._stream.ptr)
        return given

    def _locked(self) -> StreamWorkspace | None:
        """Return the stream's workspace, locked until the call ends.

        None without an operand, in the middle of a call that this thread replays, and where it
        would have to wait in the middle of a call that has another operand's.
        """
        while True:
            found = self.kept_on_stream()
            if found is None:
                return None
            if not acquire(found.lock):
                return None
            taken = False
            try:
                if found.replaying:
                    return None
                if not found.ended:  # given back because of its age while this thread waited
                    found.begin(self._stream.ptr)
                    taken = True
                    return found
            finally:
                if not taken:
                    found.lock.release()

    def keep(self, thing: Any) -> None:
        """Keep what a graph may still read alive for as long as the graph, while capturing one."""
        if self._capture is not None:
            self._capture.keep(thing)

    def kept_on_stream(self) -> StreamWorkspace | None:
        """Return the stream's workspace: the capture's, else the operand's; None without one."""
        if self.exclusive:
            return self._whole._workspace
        if self._capture is not None:
            # Threads' default streams on two devices have one place.
            return self._capture.workspace((self._device, place_of(self._stream)[0]))
        owner = self._whole._owner
        return None if owner is None else workspace_on(owner.kept, self._stream)


#: Returns the submission that this thread is in, or None; every replay asks.
current: Callable[[], Submission | None] = partial(getattr, _thread, "submission", None)


def workspace(nbytes: int) -> Any:
    """Return device memory for the current call, a uint8 array with undefined contents.

    The call owns it until it has submitted all its work. Calls of one operand on one stream share
    it (`workspace.StreamWorkspace`); in a CUDA graph it is the graph's. Outside of a submission, or
    without an operand, it is an ordinary array.

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


@cache
def _cuda() -> ModuleType:
    import cupy

    return cupy.cuda
