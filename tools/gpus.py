"""The GPUs of this machine, shared out among processes that see one each."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpu_names() -> list[str]:
    """Return a name of each GPU that this process may use, as CUDA_VISIBLE_DEVICES has them.

    CUDA is not asked: it would go on showing all GPUs to this process.
    """
    if _VISIBLE in os.environ:
        return [name for name in os.environ[_VISIBLE].split(",") if name]
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, check=False)
    return listed.stdout.split() if listed.returncode == 0 else []


def take_turns(worker: str) -> None:
    """Let the workers of a parallel test run, "gw0", "gw1", ..., begin with different GPUs."""
    names = gpu_names() if worker.startswith("gw") else []
    if len(names) > 1:
        first = int(worker.removeprefix("gw")) % len(names)
        os.environ[_VISIBLE] = ",".join(names[first:] + names[:first])


class Gpus:
    """GPUs that processes wait for: each has at most ``processes`` at a time.

    Attributes
    ----------
    count : int
        At least 1: where no GPU is found, processes see what there is.
    """

    def __init__(self, processes: int = 1):
        names = gpu_names()
        self.count = max(len(names), 1)
        self._free: SimpleQueue[Mapping[str, str]] = SimpleQueue()
        for _ in range(processes):
            for name in names or [None]:
                self._free.put({} if name is None else {_VISIBLE: name})

    @contextmanager
    def one(self) -> Iterator[Mapping[str, str]]:
        """Wait for a GPU and yield the environment variables of a process that shall see it."""
        environment = self._free.get()
        try:
            yield environment
        finally:
            self._free.put(environment)
