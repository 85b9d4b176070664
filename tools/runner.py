"""Processes that end when they are told to, and that say which lines are theirs."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from .record import ROOT

#: In place of an exit status, for lack of time.
NOT_BEGUN, UNFINISHED = -(10**6), -(10**6) - 1
_GRACE_S = 10  # between SIGTERM and SIGKILL


@dataclass(slots=True)
class Runner:
    """Runs processes until a time, and ends them all when it is told to.

    Attributes
    ----------
    deadline : float
        When nothing more is begun, by `time.perf_counter`.
    stopped : bool
    """

    deadline: float = math.inf
    stopped: bool = False
    _running: set[subprocess.Popen] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is begun."""
        return self.stopped or self.seconds <= 0

    @property
    def seconds(self) -> float:
        """Those that are left."""
        return self.deadline - time.perf_counter()

    def limit(self, option: str) -> list[str]:
        """Return an option with the seconds that are left."""
        return [] if math.isinf(self.seconds) else [option, f"{max(self.seconds, 0):.0f}"]

    def run(
        self,
        *words: str,
        environment: Mapping[str, str] = MappingProxyType({}),
        beside: str = "",
    ) -> int:
        """Run a Python module in the checkout and return its exit status.

        ``beside`` begins each line of a process that runs beside others.
        """
        if self.is_over:
            return NOT_BEGUN
        print(f"\n== {beside}{' '.join(words)}", flush=True)
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", *words],
            cwd=ROOT,
            env={**os.environ, **environment},
            process_group=0,  # what ends it ends the processes that it has started
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if beside else None,
            stderr=subprocess.STDOUT if beside else None,
        )
        self._running.add(process)
        if self.stopped:
            _kill([process], signal.SIGTERM)
        with process:  # which closes its output, and waits
            for line in process.stdout or ():
                print(beside + line.decode(errors="replace"), end="", flush=True)
        self._running.discard(process)
        return process.returncode

    def stop(self, *_: object) -> None:
        """End all processes, and begin no other: for signals."""
        self.stopped = True
        running = tuple(self._running)
        _kill(running, signal.SIGTERM)
        later = threading.Timer(_GRACE_S, _kill, (running, signal.SIGKILL))
        later.daemon = True
        later.start()


def _kill(processes: Iterable[subprocess.Popen], how: signal.Signals) -> None:
    """Send a signal to processes and those that they have started."""
    for process in processes:
        with suppress(ProcessLookupError):  # they have just ended
            os.killpg(process.pid, how)
