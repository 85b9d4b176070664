"""The cases of wrapped kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .bars import Bar
from .case import PLAIN_24, Case
from .own_kernels import FUNCTIONAL, IN_PLACE, REPEATED, TUNE
from .peer import COPY, RAW


def wrapped() -> Iterable[Case]:
    """Wrapped kernels: the host time of a call beside CuPy's own, and the search of `tune`."""
    call = Case("kernels", PLAIN_24, 1.0, (1, 4096, 1), "float32", measure="host", peers=(RAW,))
    yield replace(call, operation=IN_PLACE, bars=(Bar("peer plus", 2, RAW),))
    yield replace(call, operation=REPEATED, bars=(Bar("ms", 0.006),))
    functional = replace(call, operation=FUNCTIONAL, peers=(RAW, COPY))
    yield replace(functional, bars=(Bar("peer plus", 4, COPY),))
    search = replace(call, operation=TUNE, size=(1024, 1024, 1), measure="whole call", peers=())
    yield replace(search, bars=(Bar("ms", 5000),))
