"""A cache of what is derived from an immutable object, for all threads and streams."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from ._arrays import check_may_wait, is_captured
from ._locks import fork_safe, held

#: How many values of one kind `Memo.memo_recent` and `Memo.memo_with` keep.
RECENT = 16


class _Kept:
    """A value of which only the latest are kept, and who may be reading it.

    Attributes
    ----------
    value : object
    home : int
        The handle of the stream that it was made on. Its memory is next used by work of that
        stream, behind whatever else that stream does.
    readers : dict
        By handle: weak references to the other streams that were given it.
    """

    __slots__ = ("home", "readers", "value")

    def __init__(self, value: Any, home: int):
        self.value, self.home = value, home
        self.readers: dict[int, ref] = {}


def _handle(stream: Any) -> int:
    """Return a stream's handle; the default streams of threads have one for all of them."""
    return -threading.get_ident() if stream.ptr == _PER_THREAD else stream.ptr


_PER_THREAD = 2  # cudaStreamPerThread


class Memo:
    """Values by key, each built by the first call that asks for it.

    Parameters
    ----------
    xp : module
        The array library of the values.

    Attributes
    ----------
    steps : int
        How many results of two objects, one made of the other, led to this one (`follow`).
    """

    __slots__ = ("_lock", "_memo", "steps", "xp")

    def __init__(self, xp: Any):
        self.xp = xp
        self.steps = 0
        self._memo: dict[Hashable, Any] = {}
        self._lock = fork_safe(threading.RLock())

    def memo(self, key: Hashable, build: Callable[[], Any]) -> Any:
        """Return the value of ``key``, built on the first call.

        One thread builds while the others wait. A value on a device is complete before others see
        it, so that any stream may use it.
        """
        kept = self._memo.get(key)
        if kept is not None:
            return kept
        with held(self._lock):
            kept = self._memo.get(key)
            if kept is None:
                # Who may not wait builds it, too; what is kept first is everybody's.
                kept = self._memo.setdefault(key, self._complete(build))
        return kept

    def known(self, key: Hashable) -> Any:
        """Return the value of ``key`` if it was built already, else None."""
        return self._memo.get(key)

    def note(self, key: Hashable, value: Any) -> None:
        """Keep a value that was found on the way and holds no arrays, so that nothing waits."""
        with self._lock:
            self._memo.setdefault(key, value)

    def memo_recent(self, kind: Hashable, key: Hashable, build: Callable[[], Any]) -> Any:
        """Do what `memo` does, but keep only the latest values of a ``kind``.

        For keys without a limit: a program may call with another N in every step. A value that is
        used while a CUDA graph is captured is kept for good, since replays of the graph read it.
        So is one that would have to wait for a stream that is captured when it is its turn to go.
        """
        with held(self._lock) as taken:
            if not taken:
                return self._complete(build)
            kept = self._memo.get((kind, key))
            if kept is not None:
                return kept
            recent = self._memo.setdefault(kind, OrderedDict())
            found = recent.get(key)
            if found is None:
                found = recent[key] = self._made(build)
            recent.move_to_end(key)
            if len(recent) > RECENT:
                old, last = recent.popitem(last=False)
                if not self._may_go(last):
                    self._memo[kind, old] = last.value
            kept, captured = self._given(found)
            if captured:
                self._memo[kind, key] = kept
        return kept

    def follow(self, *others: Memo) -> None:
        """Note that this object was made of others, before anyone else sees it."""
        self.steps = 1 + max(other.steps for other in others)

    def _keeper(self, kind: Hashable, other: Memo) -> tuple[Memo, Memo, Hashable]:
        """Return which of two objects keeps what is derived from both, the other one, and the kind.

        The one with fewer `steps`, this one if they are equal. In ``P = P @ A`` each power would
        keep the next one, and A all of them.
        """
        if other.steps < self.steps:
            return other, self, (kind, "right")
        return self, other, kind

    def memo_with(self, kind: Hashable, other: Memo, build: Callable[[], Any]) -> Any:
        """Return what is derived from this object and ``other``: kept while both live.

        One of the two keeps it, and only its latest values of a ``kind``: what is derived from an
        object may live as long as it and be the next ``other``, as in powers of a matrix.

        ``build`` asks no memo of an ``other`` without more `steps`: another thread may hold its
        lock and wait for this one. What it returns holds neither object.
        """
        kept = self.known_with(kind, other)
        if kept is not None:
            return kept
        keeper, other, kind = self._keeper(kind, other)
        with held(keeper._lock) as taken:
            if not taken:
                return self._complete(build)
            pairs = keeper._memo.setdefault(kind, WeakKeyDictionary())
            found = pairs.get(other)
            if found is None:
                found = self._made(build)
                if len(pairs) >= RECENT:
                    oldest = next(iter(pairs), other)  # they may be gone meanwhile
                    last = pairs.get(oldest)
                    if last is not None and self._may_go(last):
                        pairs.pop(oldest, None)
                pairs[other] = found
        return self._given(found)[0]

    def known_with(self, kind: Hashable, other: Memo) -> Any:
        """Return what `memo_with` keeps, None where it keeps nothing."""
        keeper, other, kind = self._keeper(kind, other)
        pairs = keeper._memo.get(kind)
        found = None if pairs is None else pairs.get(other)
        return None if found is None else self._given(found)[0]

    def _on_device(self) -> AbstractContextManager:
        """Make the device that the values are for the current one."""
        return nullcontext()

    def _complete(self, build: Callable[[], Any]) -> Any:
        """Build a value and wait until the device has computed it."""
        with self._on_device():
            check_may_wait(self.xp, "making what is kept with an operand, as its first call does")
            built = build()
            if self.xp is not np:
                self.xp.cuda.get_current_stream().synchronize()
        return built

    def _made(self, build: Callable[[], Any]) -> _Kept:
        """Build a value of which only the latest are kept."""
        value = self._complete(build)
        if self.xp is np:
            return _Kept(value, 0)
        with self._on_device():
            return _Kept(value, _handle(self.xp.cuda.get_current_stream()))

    def _given(self, found: _Kept) -> tuple[Any, bool]:
        """Return a value for the current stream, and whether that is captured."""
        if self.xp is np:
            return found.value, False
        with self._on_device():
            stream = self.xp.cuda.get_current_stream()
        handle = _handle(stream)
        if handle != found.home:
            found.readers[handle] = ref(stream)
        return found.value, is_captured(stream.ptr)

    def _may_go(self, old: _Kept) -> bool:
        """Wait for the other streams that may be reading a value; return whether it can go.

        A stream that is being captured cannot be waited for. The whole device is waited for only
        where a stream is out of sight: that ends captures of other threads.
        """
        if not old.readers:
            return True
        with self._on_device():
            streams: list[Any] = [None if h < 0 else old.readers[h]() for h in old.readers]
            if None in streams:  # destroyed, another library's, or another thread's
                self.xp.cuda.runtime.deviceSynchronize()
                return True
            if any(is_captured(stream.ptr) for stream in streams):
                return False
            for stream in streams:
                stream.synchronize()
        return True
