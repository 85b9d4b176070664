"""Device memory that the calls of an operand work in, kept with the operand, one set a stream.

Kernels of one stream run one after the other, so all calls of an operand on a stream may work in
the same memory, as long as nobody else's launches come between those of a call: a lock keeps them
together (`submission.Submission`). On the per-thread default stream every thread has its own.

Memory of a stream that is gone is given back once its work is done, which an event tells. Where a
stream ends cannot be seen when another library made it: then those that were not used for longest
are given back while they hold more than `SPARE` bytes. What CUDA graphs work in is `capture`'s.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Hashable
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from .launch import Work

#: Bytes of workspace that external streams of an operand may hold besides the one in use, and
#: bytes of streams that are gone that may wait for the device.
SPARE = 32 << 20

_PER_THREAD = 2  # cudaStreamPerThread, in every thread; below it are two names of the legacy one
_FINEST, _COARSEST = 512, 16 << 20  # steps of sizes

_making = threading.Lock()
_uses = count(1)
_threads = threading.local()
# Of streams that are gone: what tells that their work is done, and the memory it runs on.
_waiting: deque[tuple[Any, list[Any]]] = deque()


class StreamWorkspace:
    """What an operand keeps for one stream: device memory, and the calls that were made there.

    Parameters
    ----------
    owner : object or None
        What is gone when the stream is: CuPy's stream, or a thread's mark. None: not to be seen.
    ends : bool
        Whether the stream can be gone at all; the legacy default stream is always there.

    Attributes
    ----------
    lock : RLock
        Held by a call from its first `chunk` until the last of its launches is enqueued.
    calls : dict
        Of ``ops/_repeat.py``. They have the addresses of `chunk` in them, so all are forgotten
        when one is replaced.
    last_use : int
        Larger the later it was used (0: on a stream that cannot end).
    ended : bool
        Whether the stream is gone, or its memory was given back.
    """

    __slots__ = (
        *("__weakref__", "_chunks", "_event", "_owner", "_record"),
        *("calls", "ended", "ends", "last_use", "lock"),
    )

    def __init__(self, owner: Any = None, ends: bool = False):
        self.lock = threading.RLock()
        self.calls: dict[Hashable, Any] = {}
        self.ends, self.ended = ends, False
        self._chunks: list[Any] = []
        self._event: Any = None
        self._record: Any = None
        self.last_use = 0
        # Neither keeps the other alive: an operand may go before a stream.
        mine = weakref.ref(self)
        self._owner = None if owner is None else weakref.ref(owner, lambda _: _end(mine()))

    @property
    def external(self) -> bool:
        """Whether the stream may be gone unseen."""
        return self.ends and self._owner is None

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def chunk(self, i: int, nbytes: int) -> Any:
        """Return the first ``nbytes`` of chunk ``i``, a uint8 array, with undefined contents.

        The caller holds the lock. A chunk that is too small is replaced; work that is enqueued on
        the old one comes before whatever CuPy's pool gives its memory to, on the same stream.
        """
        import cupy

        while len(self._chunks) <= i:
            self._chunks.append(cupy.empty(0, dtype=np.uint8))
        if self._chunks[i].nbytes < nbytes:
            self.calls = {}
            self._chunks[i] = cupy.empty(0, dtype=np.uint8)  # given back before more is taken
            self._chunks[i] = cupy.empty(rounded(nbytes), dtype=np.uint8)
        return self._chunks[i][:nbytes]

    def used(self, stream: int) -> None:
        """Mark the end of what was enqueued; the caller holds the lock."""
        if not self.ends:
            return
        if self._record is None:
            from cupy.cuda import Event, runtime

            self._event = Event(disable_timing=True)
            self._record = partial(runtime.eventRecord, self._event.ptr)
        self._record(stream)
        self.last_use = next(_uses)

    def enqueue(self, works: tuple[Work, ...], stream: int) -> None:
        """Enqueue works that have these chunks in them, as one unit."""
        with self.lock:
            for work in works:
                work.on(stream)
            if self.ends:
                self.used(stream)

    def end(self) -> None:
        """Give the memory back as soon as its work is done.

        Runs wherever Python finds that a stream is gone, so it waits for nothing and takes no lock.
        """
        if sys.is_finalizing():
            return
        self.ended, self.calls = True, {}
        chunks, self._chunks = self._chunks, []
        if not any(chunk.nbytes for chunk in chunks):
            return
        if self._event is not None and not _done(self._event):
            _waiting.append((self._event, chunks))


def _end(workspace: StreamWorkspace | None) -> None:
    if workspace is not None:
        workspace.end()


class _ThreadMark:
    """Lives as long as its thread."""

    __slots__ = ("__weakref__",)


def _thread_mark() -> _ThreadMark:
    try:
        return _threads.mark
    except AttributeError:
        mark = _threads.mark = _ThreadMark()
        return mark


def place_of(stream: Any) -> int:
    """Return what a stream's workspace is kept under: where its work is in order."""
    handle = stream.ptr
    if handle > _PER_THREAD:
        return handle
    return -id(_thread_mark()) if handle == _PER_THREAD else 0


def workspace_on(kept: dict[int, StreamWorkspace], stream: Any) -> StreamWorkspace:
    """Return an operand's workspace for a stream, made on the first call.

    Parameters
    ----------
    kept : dict
        The operand's own, empty at first.
    stream : cupy.cuda.Stream or ExternalStream
    """
    place = place_of(stream)
    found = kept.get(place)
    if found is not None and not found.ended:
        return found
    with _making:
        found = kept.get(place)
        if found is None or found.ended:
            give_back()
            for other in [p for p, workspace in kept.items() if workspace.ended]:
                del kept[other]
            found = kept[place] = _made_for(stream, place)
    return found


def _made_for(stream: Any, place: int) -> StreamWorkspace:
    from cupy.cuda import Stream

    if place <= 0:
        return StreamWorkspace(_thread_mark() if place else None, ends=place != 0)
    # A stream of CuPy's that stands for another library's (`from_external`) is made and dropped
    # at every use, while the other's lives on.
    own = type(stream) is Stream and getattr(stream, "_foreign_stream_ref", None) is None
    return StreamWorkspace(stream if own else None, ends=True)


def give_back() -> None:
    """Give back what streams that are gone have left, where their work is done with it.

    Waits for the oldest while more than `SPARE` bytes are left. The caller holds `_making`.
    """
    for _ in range(len(_waiting)):  # another thread's streams may end meanwhile, and append
        event, chunks = _waiting.popleft()
        if not _done(event):
            _waiting.append((event, chunks))
    while sum(chunk.nbytes for _, chunks in list(_waiting) for chunk in chunks) > SPARE:
        _waiting.popleft()[0].synchronize()


def _done(event: Any) -> bool:
    """Return whether an event has come, without harm to what another thread is capturing."""
    from cuda.bindings import driver

    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _, before = driver.cuThreadExchangeStreamCaptureMode(relaxed)
    try:
        return event.done
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


def give_back_external(kept: dict[int, StreamWorkspace], used: StreamWorkspace) -> None:
    """Give back what an operand's external streams hold, longest unused first, down to `SPARE`."""
    others = [w for w in list(kept.values()) if w is not used and w.external and w.nbytes]
    others.sort(key=lambda w: w.last_use)
    held = sum(w.nbytes for w in others)
    for workspace in others:
        if held <= SPARE:
            return
        # One that a thread is using now is the least of those to be given back.
        if workspace.lock.acquire(blocking=False):
            try:
                held -= workspace.nbytes
                workspace.end()
            finally:
                workspace.lock.release()


def rounded(nbytes: int) -> int:
    """Return a size that many sizes share: at most an eighth more, and at most 16 MB.

    Examples
    --------
    >>> [rounded(n) for n in (1, 513, 100_000, 2**20 + 1)]
    [512, 1024, 106496, 1179648]
    """
    step = 1 << max((nbytes - 1).bit_length() - 4, 0)
    step = min(max(step, _FINEST), _COARSEST)
    return -(-nbytes // step) * step
