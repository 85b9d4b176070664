"""What a peer brings to the race."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class NotAvailableError(Exception):
    """A peer does not run here or does not offer a case; the message says why."""


@dataclass
class Contestant:
    """A peer ready to run.

    Attributes
    ----------
    call : callable
        Computes the product anew.
    result : array
        Where to.
    note : str
        How the peer was brought to its best.
    keep : object
        What must stay in memory.
    """

    call: Callable[[], Any]
    result: Any
    note: str = ""
    keep: Any = None
