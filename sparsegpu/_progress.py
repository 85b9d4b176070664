"""What a call that takes long says meanwhile."""

from __future__ import annotations

import sys
import time
from types import TracebackType

_FIRST_S = 2.0


class Progress:
    """Says on standard error how far something is; nothing in its first two seconds.

    On a terminal it is one line that is written over. Elsewhere it is a line, and each next one
    comes when twice the time has passed, so that a log stays short.

    Attributes
    ----------
    where : str
        Comes before every text.

    Examples
    --------
    >>> with Progress("search") as said:
    ...     said("round 1")
    """

    def __init__(self, what: str, shown: bool = True):
        self.where = ""
        self._what, self._shown = what, shown
        self._began = time.monotonic()
        self._due = self._began + _FIRST_S
        self._line_is_open = False

    def __call__(self, text: str) -> None:
        """Say where it is, if that is due."""
        now = time.monotonic()
        if not self._shown or now < self._due:
            return
        line = f"{self._what}: {self.where}{text}, {now - self._began:.0f} s"
        if sys.stderr.isatty():
            print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)
            self._line_is_open = True
            self._due = now + _FIRST_S / 4
        else:
            print(line, file=sys.stderr, flush=True)
            self._due = now + (now - self._began)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._line_is_open:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
