"""The GPUs of this machine, shared out among processes that see one each."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

_VISIBLE = "CUDA_VISIBLE_DEVICES"
CORES_A_GPU = 16  # processes of a GPU of which each compiles


def gpu_names() -> list[str]:
    """Return a name of each GPU that this process may use, as CUDA_VISIBLE_DEVICES has them.

    CUDA is not asked: it would go on showing all GPUs to this process. Of a machine with several
    models only those of the first: a record is of one model.
    """
    if _VISIBLE in os.environ:
        names = [name.strip() for name in os.environ[_VISIBLE].split(",")]
        return [name for name in names if name]
    listed = [line.split(", ", 1) for line in _nvidia_smi("index,name")]
    return [index for index, model in listed if model == listed[0][1]]


def model() -> str | None:
    """Return the name of the first GPU of this machine, without CUDA; None if there is none."""
    return next(iter(_nvidia_smi("name")), None)


def _nvidia_smi(what: str) -> list[str]:
    """Return a line about each GPU."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, check=False)
    return listed.stdout.splitlines() if listed.returncode == 0 else []


def visible(*names: str) -> dict[str, str]:
    """Return the environment variables of a process that shall see these GPUs, in this order."""
    if not names:
        return {}
    # CUDA numbers GPUs by speed, nvidia-smi by their place on the bus
    numbered = {} if _VISIBLE in os.environ else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {_VISIBLE: ",".join(names), **numbered}


def take_turns(worker: str) -> None:
    """Let the workers of a parallel run, "gw0", "gw1", ..., begin with different GPUs."""
    names = gpu_names() if worker.startswith("gw") else []
    if len(names) > 1:
        first = int(worker.removeprefix("gw")) % len(names)
        os.environ.update(visible(*names[first:], *names[:first]))


def take_next_turn(turns: Any) -> None:
    """Let a process that shares a number with others begin with another GPU than the one before."""
    with turns.get_lock():
        worker = turns.value
        turns.value += 1
    take_turns(f"gw{worker}")


class Gpus:
    """GPUs that processes wait for: each has at most ``processes`` at a time.

    Attributes
    ----------
    names : list of str
    count : int
        At least 1: where no GPU is found, processes see what there is.
    each : list of dict
        For each GPU the environment variables of a process that shall see it alone.
    """

    def __init__(self, processes: int = 1):
        self.names = gpu_names()
        self.each = [visible(name) for name in self.names] or [{}]
        self.count = len(self.each)
        self._free: SimpleQueue[Mapping[str, str]] = SimpleQueue()
        for _ in range(processes):
            for environment in self.each:
                self._free.put(environment)

    @property
    def workers(self) -> int:
        """How many processes that compile and compute shall share the GPUs."""
        return min(CORES_A_GPU * self.count, len(os.sched_getaffinity(0)))

    @contextmanager
    def one(self) -> Iterator[Mapping[str, str]]:
        """Wait for a GPU and yield the environment variables of a process that shall see it."""
        environment = self._free.get()
        try:
            yield environment
        finally:
            self._free.put(environment)
