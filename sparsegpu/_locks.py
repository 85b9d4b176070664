"""Locks that a forked child finds free.

A fork copies the locks that other threads hold, but not the threads: nobody would release them in
the child. What our locks guard is whole whenever another thread may fork: a value is built first,
and seen by others only once it is stored, in one step. So a child needs no more than free locks.
"""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakSet

_locks: WeakSet[Any] = WeakSet()


def fork_safe(lock: Any) -> Any:
    """Return a `threading.Lock` or `threading.RLock`, from now on free in forked children.

    An RLock that the forking thread itself holds stays held: that thread goes on in the child.
    """
    _locks.add(lock)
    return lock


def _free_in_child() -> None:
    for lock in _locks:
        if not (hasattr(lock, "_is_owned") and lock._is_owned()):
            lock._at_fork_reinit()  # as the standard library does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_in_child)
