"""The engine's threads: each computes its own rows of a result, so that the bits do not depend on
their number.

numba's ``parallel=True`` is not used: its workqueue layer aborts the process when two Python
threads enter it, its GNU OpenMP layer aborts in a forked child, and it multiplies compile times.
The kernels release the GIL instead and are called from this small pool.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import RLock
from typing import Any

import numba
import numpy as np

from ..._locks import fork_safe

#: About a millisecond of multiply-adds; waking a thread costs a tenth of that, or more.
WORTH_A_THREAD = 4_000_000

_lock = fork_safe(RLock())  # reentrant: a user's finalizer may run while it is held
_pool: ThreadPoolExecutor | None = None


def thread_count() -> int:
    """Return how many threads compute: ``NUMBA_NUM_THREADS``, by default the usable cores."""
    return numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]


def for_each(function: Callable[[Any], None], items: Iterable[Any], cost: float = np.inf) -> None:
    """Call ``function`` on every item, on several threads; the caller's is one of them.

    Items are taken in order by the next free thread. As the caller works too, calls from several
    Python threads (and from a ``function``) share the pool without waiting for it. ``cost``, the
    multiply-adds or elements of all items, decides whether waking threads pays.
    """
    if cost < WORTH_A_THREAD:
        with np.errstate(all="ignore"):
            for item in items:
                function(item)
        return
    queue = deque(items)
    threads = min(thread_count(), len(queue))

    def work() -> None:
        with np.errstate(all="ignore"):  # a worker does not inherit the caller's
            while True:
                try:
                    item = queue.popleft()
                except IndexError:
                    return
                function(item)

    helpers = [_threads().submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        queue.clear()  # after an error no further item is started
        for helper in helpers:
            if not helper.cancel():
                helper.result()


def pieces(cost: float) -> int:
    """Return into how many items to cut a job of that cost (see `for_each`)."""
    return 4 * thread_count() if cost >= WORTH_A_THREAD else 1


def spans(weights: np.ndarray, most: int, pieces: int) -> list[tuple[int, int]]:
    """Cut ``range(len(weights))`` into spans of about equal weight, each of at most ``most``.

    ``weights`` are the ends of a running sum, as in an ``indptr``'s tail.
    """
    count = len(weights)
    if pieces == 1 and count <= most:
        return [(0, count)]
    goals = np.linspace(0, float(weights[-1]), pieces + 1)[1:-1] if count else np.empty(0)
    cuts = {0, count, *np.searchsorted(weights, goals).tolist(), *range(0, count, max(most, 1))}
    edges = sorted(cuts)
    return list(pairwise(edges))


def even_spans(count: int, pieces: int) -> list[tuple[int, int]]:
    """Cut ``range(count)`` into at most so many spans of about equal length; none is empty."""
    edges = sorted({i * count // pieces for i in range(pieces + 1)})
    return list(pairwise(edges))


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(thread_count(), "sparsegpu")
        return _pool


def _forget() -> None:
    """Start without a pool in a forked child, which does not have the parent's threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
