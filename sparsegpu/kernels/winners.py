"""Measured configurations of wrapped kernels, in the per-user cache."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from hashlib import sha256
from json import dumps, loads

from .._cache import read_entry, remove_entries, write_entry
from .._locks import fork_safe
from .config import Config

_CACHE = "tuned-kernels"
_MOST_KNOWN = 4096

#: Incremented by `keep` and `forget`: a part of the key of a plan.
generation = 0
# Held while `_known` is changed; reentrant: a user's finalizer may run then.
_lock = fork_safe(threading.RLock())
_known: dict[Hashable, Config | None] = {}


def find(kind: Hashable, configs: Sequence[Config]) -> Config | None:
    """Return the one of these configurations that was the fastest, None where none is known.

    Parameters
    ----------
    kind : hashable
        The kernel's text, name and options, and what its winners depend on, all with a ``repr``
        that tells them from others.
    configs : sequence of Config
        Those of now: a winner that is not among them does not count.
    """
    try:
        winner = _known[kind]
    except KeyError:
        winner = read_entry(_CACHE, _digest(kind), _decoded)
        _remember(kind, winner)
    return winner if winner in configs else None


def keep(kind: Hashable, config: Config) -> None:
    """Keep a winner, for this process and those to come."""
    content = config.block, config.shared_memory, config.options, config.cluster
    write_entry(_CACHE, _digest(kind), dumps([dict(config.defines), *content]).encode())
    _remember(kind, config)
    _next_generation()


def forget() -> int:
    """Remove all of them and return how many there were."""
    removed = remove_entries(_CACHE)
    with _lock:
        _known.clear()
    _next_generation()
    return removed


def _next_generation() -> None:
    global generation
    with _lock:
        generation += 1


def _remember(kind: Hashable, winner: Config | None) -> None:
    with _lock:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[kind] = winner


def _decoded(entry: bytes) -> Config:
    defines, block, shared_memory, options, cluster = loads(entry)
    block, cluster = (None if sizes is None else tuple(sizes) for sizes in (block, cluster))
    return Config(defines, block, shared_memory, tuple(options), cluster)


def _digest(kind: Hashable) -> str:
    return sha256(repr(kind).encode()).hexdigest()
