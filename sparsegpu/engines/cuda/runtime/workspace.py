"""Device memory that the calls of an operand work in, kept with the operand, one set a stream.

Kernels of one stream run one after the other, so all calls of an operand on a stream may work in
the same memory, as long as nobody else's launches come between those of a call: a lock keeps them
together (`submission.Submission`). On the per-thread default stream every thread has its own.

One rule says who owns the memory: the `StreamWorkspace`, nobody else. A call that is kept to be
repeated has addresses, and is good for as long as the dictionary that it is kept in is in place
(`StreamWorkspace.enqueue` looks, under the lock).

Memory of a stream that is gone is given back once its work is done, which an event tells. Where a
stream ends cannot be seen when another library made it: then those that were not used for longest
are given back while they hold more than `SPARE` bytes. What CUDA graphs work in is `capture`'s.
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

from .launch import Work

#: Bytes of workspace that external streams of an operand may hold besides the one in use, and
#: bytes of streams that are gone that may wait for the device when another stream comes.
SPARE = 32 << 20

_PER_THREAD = 2  # cudaStreamPerThread, in every thread; below it are two names of the legacy one
_REMEMBERED = 64  # external workspaces of an operand that were given back
_FINEST, _COARSEST = 512, 16 << 20  # steps of sizes

_making = threading.RLock()  # Python may run a finalizer of a user's while it is held
_reclaiming = threading.Lock()  # never waited for
_uses = count(1)
_threads = threading.local()
# Of streams that are gone: what tells that their work is done, and the memory it runs on.
_waiting: deque[tuple[Any, list[Any]]] = deque()


class StreamWorkspace:
    """What an operand keeps for one stream: device memory, and the calls that were made there.

    Parameters
    ----------
    owner : object or None
        What is gone when the stream is: CuPy's stream, or a thread's mark.
    external : bool
        The stream is another library's: it may be gone unseen, and another have its handle.
    patience : int
        How many uses of any workspace an external one stays without being used.

    Attributes
    ----------
    lock : RLock
        Held by a call from its first `chunk` until the last of its launches is enqueued.
    calls : dict
        Of ``ops/_repeat.py``. Another one is put in place when a chunk is.
    last_use : int
        Larger the later it was used (0: on a stream that cannot end).
    ended : bool
        Whether the stream is gone, or the memory was given back.
    """

    __slots__ = (
        *("__weakref__", "_chunks", "_event", "_owner", "_record", "_wait"),
        *("calls", "ended", "external", "last_use", "lock", "patience"),
    )

    def __init__(self, owner: Any = None, *, external: bool = False, patience: int = 0):
        self.lock = threading.RLock()
        self.calls: dict[Hashable, Any] = {}
        self.external, self.patience = external, patience
        self.ended, self.last_use = False, 0
        self._chunks: list[Any] = []
        self._event: Any = None
        self._record: Any = None
        self._wait: Any = None
        # Neither keeps the other alive: an operand may go before a stream.
        mine = weakref.ref(self)
        self._owner = None if owner is None else weakref.ref(owner, lambda _: _end(mine()))

    def serves(self, owner: Any) -> bool:
        """Return whether it is still there, and for this stream.

        A handle says too little: the driver gives that of a stream that is gone to the next one,
        which may be here before we hear of the end.
        """
        return not self.ended and (None if self._owner is None else self._owner()) is owner

    @property
    def never_ends(self) -> bool:
        """Whether it is the legacy default stream's, or a capture's, whose work is its graph's."""
        return self._owner is None and not self.external

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

    def begin(self, stream: int) -> None:
        """Come after what was enqueued before; the caller holds the lock.

        The stream itself sees to that, unless it is another one that has an external one's handle.
        """
        if self.external and self._wait is not None:
            self._wait(stream)

    def used(self, stream: int) -> None:
        """Mark the end of what was enqueued; the caller holds the lock."""
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
        """Enqueue works that have these chunks in them, as one unit.

        Returns
        -------
        bool
            False, and nothing is enqueued, where ``calls``, which they were found in, is no longer
            in place: another thread has replaced a chunk meanwhile.
        """
        with self.lock:
            if self.calls is not calls:
                return False
            self.begin(stream)
            try:
                for work in works:
                    work.on(stream)
            finally:
                self.used(stream)
        if _waiting:
            reclaim()
        return True

    def end(self, *, ordered: bool = False) -> None:
        """Give the memory back as soon as its work is done.

        Runs wherever Python finds that a stream is gone, so it waits for nothing and takes no lock.
        ``ordered``: at once, for CuPy's pool gives it to nobody but the same stream.
        """
        if sys.is_finalizing():
            return
        self.ended, self.calls = True, {}
        chunks, self._chunks = self._chunks, []
        pending = not ordered and self._event is not None and any(c.nbytes for c in chunks)
        if pending and not _done(self._event):
            _waiting.append((self._event, chunks))


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
    """Return what a stream's workspace is kept under, and what is gone when the stream is.

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
        # A stream of CuPy's that stands for another library's (`from_external`) is made and
        # dropped at every use, while the other's lives on.
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
    """Return an operand's workspace for a stream if it is there: a part of every repeated call."""
    found = kept.get(stream.ptr)  # of CuPy's streams and the default one, which are most
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
                if not found.ended:  # its stream's handle is another's by now
                    found.end()
                patience = 2 * (next(_uses) - found.last_use)
            _forget_ended(kept)
            external = place.__class__ is tuple
            found = kept[place] = StreamWorkspace(owner, external=external, patience=patience)
    return found


def _forget_ended(kept: dict[Hashable, StreamWorkspace]) -> None:
    """Drop what ended, but for the latest external ones, whose streams may come back."""
    ended = [place for place, workspace in list(kept.items()) if workspace.ended]
    external = sorted((p for p in ended if kept[p].external), key=lambda p: kept[p].last_use)
    for place in ended:
        if place not in external[-_REMEMBERED:]:
            del kept[place]


def reclaim(down_to: int | None = None) -> None:
    """Give back what streams that are gone have left, the oldest first, where its work is done.

    Waits while more than ``down_to`` bytes are left; without it for nothing.
    """
    if not _reclaiming.acquire(blocking=False):
        return  # somebody is at it
    try:
        # From the oldest on; another thread's streams may end meanwhile, and append.
        while _waiting and _done(_waiting[0][0]):
            _waiting.popleft()
        while down_to is not None and _bytes_waiting() > down_to:
            with _relaxed():
                _waiting[0][0].synchronize()
            _waiting.popleft()
    finally:
        _reclaiming.release()


def _bytes_waiting() -> int:
    return sum(chunk.nbytes for _, chunks in list(_waiting) for chunk in chunks)


def _done(event: Any) -> bool:
    with _relaxed():
        return event.done


@contextmanager
def _relaxed() -> Iterator[None]:
    """Ask and wait without harm to what another thread is capturing."""
    from cuda.bindings import driver

    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _, before = driver.cuThreadExchangeStreamCaptureMode(relaxed)
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


def reclaim_external(kept: dict[Hashable, StreamWorkspace], used: StreamWorkspace) -> None:
    """Give back what an operand's external streams hold, longest unused first, down to `SPARE`.

    One that came back after it was given back stays for twice the time that it was away.
    """
    others = [w for w in list(kept.values()) if w is not used and w.external and w.nbytes]
    others.sort(key=lambda w: w.last_use)
    held, now = sum(w.nbytes for w in others), next(_uses)
    for workspace in others:
        if held <= SPARE:
            return
        # One that a thread is using now is the least of those to be given back.
        if now - workspace.last_use > workspace.patience and workspace.lock.acquire(blocking=False):
            try:
                held -= workspace.nbytes
                workspace.end(ordered=True)
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
