"""A cache of what is derived from an immutable object, for all threads and streams."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ._arrays import check_may_wait, is_captured
from ._locks import fork_safe

#: How many values of one kind `Memo.memo_recent` and `Memo.memo_with` keep.
RECENT = 16


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
        with self._lock:
            kept = self._memo.get(key)
            if kept is None:
                kept = self._memo[key] = self._complete(build)
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
        """
        with self._lock:
            kept = self._memo.get((kind, key))
            if kept is not None:
                return kept
            recent = self._memo.setdefault(kind, OrderedDict())
            kept = recent.get(key)
            if kept is None:
                kept = recent[key] = self._complete(build)
            recent.move_to_end(key)
            if len(recent) > RECENT:
                self._wait_for_readers()
                recent.popitem(last=False)
            if self.xp is not np and is_captured(self.xp.cuda.get_current_stream().ptr):
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
        with keeper._lock:
            pairs = keeper._memo.setdefault(kind, WeakKeyDictionary())
            kept = pairs.get(other)
            if kept is None:
                kept = self._complete(build)
                if len(pairs) >= RECENT:
                    self._wait_for_readers()
                    oldest = next(iter(pairs), other)  # they may be gone meanwhile
                    pairs.pop(oldest, None)
                pairs[other] = kept
        return kept

    def known_with(self, kind: Hashable, other: Memo) -> Any:
        """Return what `memo_with` keeps, None where it keeps nothing."""
        keeper, other, kind = self._keeper(kind, other)
        pairs = keeper._memo.get(kind)
        return None if pairs is None else pairs.get(other)

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

    def _wait_for_readers(self) -> None:
        """Wait for the device: whatever its streams may be reading can go."""
        if self.xp is not np:
            with self._on_device():
                self.xp.cuda.runtime.deviceSynchronize()
