"""Locks that a forked child finds free.

A fork copies the locks that other threads hold, but not the threads: nobody would release them in
the child. What our locks guard is whole whenever another thread may fork: a value is built first,
and seen by others only once it is stored, in one step. So a child needs no more than free locks.

In the middle of a call a finalizer of the user's may make another one. If a thread that holds a
lock of one operand waited for that of another, a second thread could do the reverse. So it does not
wait: see `acquire`.

It is otherwise with an import or a compiler: what they guard may be half done, so a fork waits for
them. One hook takes all these locks: a hook of its own for each would be registered too late for
the fork that waits for the very import that brings the lock.
"""

from __future__ import annotations

import logging  # noqa: F401  (see below)
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from operator import methodcaller
from typing import Any
from weakref import WeakSet

_locks: WeakSet[Any] = WeakSet()
#: What a fork waits for, in the order in which a thread may take them.
_awaited: list[Any] = []


class _Taken(threading.local):
    def __init__(self) -> None:
        self.locks: list[Any] = []


#: What the forking thread, in the parent as in the child, has to release.
_taken = _Taken()


def fork_safe(lock: Any) -> Any:
    """Return a `threading.Lock` or `threading.RLock`, from now on free in forked children.

    An RLock that the forking thread itself holds stays held: that thread goes on in the child.
    """
    _locks.add(lock)
    return lock


#: The locks of operands that this thread took. Those that it released meanwhile do not count.
_operands = _Taken()
_is_owned = methodcaller("_is_owned")


def _holds_one() -> bool:
    """Return whether this thread holds the lock of an operand.

    The locks are asked, since Ctrl-C may come between a release and a note of it.
    """
    _operands.locks[:] = filter(_is_owned, _operands.locks)
    return bool(_operands.locks)


def acquire(lock: Any) -> bool:
    """Take the RLock of an operand; the caller releases it.

    Returns
    -------
    bool
        False, without the lock, where this thread holds another one and would have to wait.
    """
    if not lock.acquire(blocking=not _holds_one()):
        return False
    _operands.locks.append(lock)
    return True


@contextmanager
def held(lock: Any) -> Iterator[bool]:
    """Do what `acquire` does around a ``with`` block, whose end releases the lock."""
    if not _holds_one():
        with lock:  # at no line of which Ctrl-C leaves it taken
            _operands.locks.append(lock)
            yield True
        return
    taken = False
    try:
        taken = acquire(lock)
        yield taken
    finally:
        if taken:
            lock.release()


def awaited_by_forks(lock: Any) -> Any:
    """Return an RLock that a fork takes first: it waits for a thread that holds it."""
    _awaited.append(lock)
    return lock


def _take() -> None:
    while len(_taken.locks) < len(_awaited):  # grows while we wait: an import brings another lock
        lock = _awaited[len(_taken.locks)]
        lock.acquire()
        _taken.locks.append(lock)


def _release() -> None:
    while _taken.locks:
        _taken.locks.pop().release()


def _free_in_child() -> None:
    for lock in _locks:
        if not (hasattr(lock, "_is_owned") and lock._is_owned()):
            lock._at_fork_reinit()  # as the standard library does with its own
    _release()


# What was registered last is done first. `logging` takes its lock before a fork, too, and a
# compiler logs: so its hook has to be there before ours, or a fork and a compiler wait for each
# other.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take, after_in_parent=_release, after_in_child=_free_in_child)
