"""Device memory for the kernels of an operand's calls, kept with the operand, one set a stream.

Kernels of one stream run one after the other, so all calls of an operand on a stream can use the
same memory, as long as no other call's launches come between those of a call: a lock prevents that
(`submission.Submission`). On the per-thread default stream every thread has its own memory.

The `StreamWorkspace` alone owns the memory. A recorded call holds addresses in it and may be
replayed only while the dictionary that it was found in is in place, which
`StreamWorkspace.enqueue` checks under the lock.

When a stream is destroyed, its memory is given back once an event says that its work is done. The
end of another library's stream cannot be seen. Such workspaces are given back, least recently used
first, while they hold more than `SPARE` bytes. The memory of CUDA graphs is `capture`'s.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np

from ...._locks import acquire, fork_safe
from ...._math import round_up
from .launch import Work, enqueue

#: Bytes of workspace that an operand's external streams may hold besides the one in use. Also the
#: bytes of destroyed streams that may still wait for the device when a new stream comes.
SPARE = 32 << 20

_PER_THREAD = 2  # cudaStreamPerThread; 0 and 1 are both the legacy default stream
_REMEMBERED = 64  # external workspaces of an operand without memory
_FINEST, _COARSEST = 512, 16 << 20  # the steps in which sizes are rounded

_making = fork_safe(threading.RLock())  # reentrant: a user's finalizer may run while it is held
_reclaiming = fork_safe(threading.Lock())  # only ever tried, never waited for
_uses = count(1)
_threads = threading.local()
# Of destroyed streams: the event behind their work, and the memory that the work uses.
_waiting: deque[tuple[Any, list[Any]]] = deque()


class StreamWorkspace:
    """What an operand keeps for one stream: device memory, and the calls recorded there.

    Parameters
    ----------
    owner : object or None
        An object that lives as long as the stream: CuPy's stream, or a thread's mark.
    external : bool
        The stream is another library's: it may end unseen, and a new one may have its handle.
    patience : int
        After how many uses of other workspaces an external one that was not used may be given back.

    Attributes
    ----------
    lock : RLock
        Held by a call from its first `chunk` until the last of its launches is enqueued.
    calls : dict
        The calls recorded by `replay`. Replaced by a new one whenever a chunk is replaced.
    never_ends : bool
        Whether it is the legacy default stream's or a capture's.
    last_use : int
        Grows with every use (0: never used, or on a stream that cannot end).
    ended : bool
        Whether the stream was destroyed, or the memory was given back.
    replaying : bool
        Whether the works of a call are being enqueued: its thread may come by again, as a user's
        finalizer that runs there.
    """

    __slots__ = (
        *("__weakref__", "_chunks", "_event", "_owner", "_record", "_wait"),
        *("calls", "ended", "external", "last_use", "lock", "never_ends", "patience", "replaying"),
    )

    def __init__(self, owner: Any = None, *, external: bool = False, patience: int = 0):
        self.lock = fork_safe(threading.RLock())
        self.calls: dict[Hashable, Any] = {}
        self.external, self.patience = external, patience
        self.never_ends = owner is None and not external
        self.ended, self.replaying, self.last_use = False, False, 0
        self._chunks: list[Any] = []
        self._event: Any = None
        self._record: Any = None
        self._wait: Any = None
        # Neither keeps the other alive: the operand may be deleted before the stream.
        mine = weakref.ref(self)
        self._owner = None if owner is None else weakref.ref(owner, lambda _: _end(mine()))

    def serves(self, owner: Any) -> bool:
        """Return whether this is still in use, and for this very stream.

        The handle is not enough: the driver reuses that of a destroyed stream, maybe before we
        learn that the stream was destroyed.
        """
        return not self.ended and (None if self._owner is None else self._owner()) is owner

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def chunk(self, i: int, nbytes: int) -> Any:
        """Return the first ``nbytes`` of chunk ``i``, a uint8 array, with undefined contents.

        The caller holds the lock. A chunk that is too small is replaced at once: CuPy's pool gives
        its memory to later work of the same stream only, which runs behind what still uses it.
        """
        import cupy

        while len(self._chunks) <= i:
            self._chunks.append(cupy.empty(0, dtype=np.uint8))
        if self._chunks[i].nbytes < nbytes:
            self.calls = {}
            self._chunks[i] = cupy.empty(0, dtype=np.uint8)  # free the old one first
            self._chunks[i] = cupy.empty(rounded(nbytes), dtype=np.uint8)
        return self._chunks[i][:nbytes]

    def begin(self, stream: int) -> None:
        """Order what follows behind the earlier uses; the caller holds the lock.

        The stream itself does that, but a handle of another library's may be a new stream's.
        """
        if self.external and self._wait is not None:
            self._wait(stream)

    def used(self, stream: int) -> None:
        """Record an event behind what was enqueued; the caller holds the lock."""
        if self.never_ends:
            return
        if self._record is None:
            from cupy.cuda import Event, runtime

            self._event = Event(disable_timing=True)
            self._record = partial(runtime.eventRecord, self._event.ptr)
            self._wait = _waits_for(self._event.ptr)
        self._record(stream)
        self.last_use = next(_uses)

    def enqueue(self, calls: dict, works: tuple[Work, ...], stream: int) -> bool:
        """Replay works that use these chunks, as one unit.

        Returns
        -------
        bool
            False, with nothing enqueued, where ``calls``, in which they were found, is no longer
            in place because another thread has replaced a chunk, in the middle of a replay, and
            where the lock is another thread's and this one has another operand's.
        """
        if not acquire(self.lock):
            return False
        try:
            if self.calls is not calls or self.replaying:
                return False
            self.begin(stream)
            self.replaying = True
            try:
                enqueue(works, stream, True)
            finally:
                self.replaying = False
                self.used(stream)
        finally:
            self.lock.release()
        if _waiting:
            reclaim()
        return True

    def end(self, *, current: int | None = None) -> None:
        """Give the memory back as soon as the work that uses it is done.

        Called from a stream's finalizer, that is anywhere, so it neither waits nor takes a lock.
        ``current``: give it back at once, and have the current stream wait for the work. CuPy's
        pool reuses memory on the stream that it was allocated on only, but its ``malloc_async``
        frees memory whose stream object is gone on the current one.
        """
        if sys.is_finalizing():
            return
        self.ended, self.calls = True, {}
        chunks, self._chunks = self._chunks, []
        if self._event is None or not any(c.nbytes for c in chunks) or _done(self._event):
            return
        if current is None:
            _waiting.append((self._event, chunks))
        else:
            self._wait(current)


def _end(workspace: StreamWorkspace | None) -> None:
    if workspace is not None:
        workspace.end()


def _waits_for(event: int) -> Any:
    from cupy.cuda import runtime

    return lambda stream: runtime.streamWaitEvent(stream, event)


class _ThreadMark:
    """Lives as long as its thread."""

    __slots__ = ("__weakref__",)


def _thread_mark() -> _ThreadMark:
    try:
        return _threads.mark
    except AttributeError:
        mark = _threads.mark = _ThreadMark()
        return mark


def place_of(stream: Any) -> tuple[Hashable, Any]:
    """Return the key of a stream's workspace, and an object that lives as long as the stream.

    Parameters
    ----------
    stream : cupy.cuda.Stream or ExternalStream

    Returns
    -------
    place : hashable
    owner : object or None
        See `StreamWorkspace`.
    """
    handle = stream.ptr
    if handle > _PER_THREAD:
        # A CuPy stream that wraps another library's (`from_external`) is made anew at every use,
        # while the wrapped stream lives on.
        if type(stream) is _stream_type() and getattr(stream, "_foreign_stream_ref", None) is None:
            return handle, stream
        return ("external", handle), None
    if handle == _PER_THREAD:
        mark = _thread_mark()
        return -id(mark), mark
    return 0, None


@cache
def _stream_type() -> type:
    from cupy.cuda import Stream

    return Stream


def found_on(kept: dict[Hashable, StreamWorkspace], stream: Any) -> StreamWorkspace | None:
    """Return an operand's workspace for a stream, None where there is none; for every replay."""
    found = kept.get(stream.ptr)  # the key of most: CuPy's streams and the default one
    if found is not None and (found.never_ends or found.serves(stream)):
        return found
    place, owner = place_of(stream)
    found = kept.get(place)
    return found if found is not None and found.serves(owner) else None


def workspace_on(kept: dict[Hashable, StreamWorkspace], stream: Any) -> StreamWorkspace:
    """Return an operand's workspace for a stream, made on the first call.

    Parameters
    ----------
    kept : dict
        The operand's own, empty at first.
    stream : cupy.cuda.Stream or ExternalStream
    """
    found = found_on(kept, stream)
    if found is not None:
        return found
    reclaim(down_to=SPARE)
    place, owner = place_of(stream)
    with _making:
        found = kept.get(place)
        if found is None or not found.serves(owner):
            patience = 0
            if found is not None:
                if not found.ended:  # a new stream has the handle of its stream
                    found.end()
                patience = 2 * (next(_uses) - found.last_use)
            _forget(kept)
            external = place.__class__ is tuple
            found = kept[place] = StreamWorkspace(owner, external=external, patience=patience)
    return found


def _forget(kept: dict[Hashable, StreamWorkspace]) -> None:
    """Drop what ended, and all but the latest external ones without memory, which may come back."""
    external = [place for place, w in list(kept.items()) if w.external and not w.nbytes]
    external.sort(key=lambda place: kept[place].last_use)
    ended = [place for place, w in list(kept.items()) if w.ended and not w.external]
    for place in (*ended, *external[:-_REMEMBERED]):
        del kept[place]


def reclaim(down_to: int | None = None) -> None:
    """Give back the memory of destroyed streams whose work is done, the oldest first.

    Waits for the device while more than ``down_to`` bytes are left; without it never.
    """
    if not _reclaiming.acquire(blocking=False):
        return  # another thread does it
    try:
        # Other threads' streams may end meanwhile and append.
        while _waiting and _done(_waiting[0][0]):
            _waiting.popleft()
        while down_to is not None and _bytes_waiting() > down_to:
            with relaxed():
                _waiting[0][0].synchronize()
            _waiting.popleft()
    finally:
        _reclaiming.release()


def _bytes_waiting() -> int:
    return sum(chunk.nbytes for _, chunks in list(_waiting) for chunk in chunks)


def _done(event: Any) -> bool:
    with relaxed():
        return event.done


@contextmanager
def relaxed() -> Iterator[None]:
    """Allow queries and waits that would invalidate a capture of another thread's."""
    from cuda.bindings import driver

    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _, before = driver.cuThreadExchangeStreamCaptureMode(mode)
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


def reclaim_external(
    kept: dict[Hashable, StreamWorkspace], used: StreamWorkspace, current: int
) -> None:
    """Give back memory of an operand's external streams, least recently used first, to `SPARE`.

    The current stream, given by its handle, waits for the work that uses it.
    One that was used again after it was given back is kept for twice the time that it was unused.
    """
    others = [w for w in list(kept.values()) if w is not used and w.external and w.nbytes]
    others.sort(key=lambda w: w.last_use)
    held, now = sum(w.nbytes for w in others), next(_uses)
    for workspace in others:
        if held <= SPARE:
            return
        lock, unused = workspace.lock, now - workspace.last_use
        # Not what another thread is using now, nor this one, in the middle of whose call we may be.
        if unused > workspace.patience and not lock._is_owned() and lock.acquire(blocking=False):
            try:
                held -= workspace.nbytes
                workspace.end(current=current)
            finally:
                lock.release()


def rounded(nbytes: int) -> int:
    """Return a size rounded up, by at most an eighth and 16 MB, so that many sizes share it.

    Examples
    --------
    >>> [rounded(n) for n in (1, 513, 100_000, 2**20 + 1)]
    [512, 1024, 106496, 1179648]
    """
    step = 1 << max((nbytes - 1).bit_length() - 4, 0)
    step = min(max(step, _FINEST), _COARSEST)
    return round_up(nbytes, step)
