"""Runs `tools.trial` in processes with a time limit, and tells what their outcomes mean."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from sparsegpu.engines.cuda.runtime.source import source_names, source_root

from .barriers import Barrier
from .gpus import Gpus
from .record import ROOT
from .sanitizer_log import Findings
from .trial import Request, written

TOOLS = {
    "memcheck": [],
    "racecheck": ["--racecheck-report", "analysis", "--racecheck-detect-level", "warn"],
}
_FOUND = 9  # exit status of a tool that found something


@dataclass(slots=True)
class Outcome:
    """The outcome of a trial: exit status (None: it was stopped), output and answers."""

    status: int | None
    log: str
    answers: list[dict[str, Any]]

    @property
    def change(self) -> dict[str, Any] | None:
        """The answer about the changed kernel; None if the trial did not get so far."""
        return next((a for a in self.answers if "rounds" in a), None)

    def digests(self) -> dict[str, str]:
        """Return the hash of each case's result with unchanged kernels."""
        return {a["case"]: a["digest"] for a in self.answers if "case" in a}


class TrialRunner:
    """Runs trials, each in a process with a time limit, on all GPUs, ``processes`` on each."""

    def __init__(self, folder: Path, processes: int):
        self.folder, self.gpus = folder, Gpus(processes)
        self._numbers = count()
        self._copying = threading.Lock()
        self._running: set[subprocess.Popen] = set()
        self._closed = False

    def close(self) -> None:
        """Kill all trials, and later ones as soon as they start: none is left on the GPU."""
        self._closed = True
        for process in tuple(self._running):
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)

    def _lanes_arrive(self) -> Path:
        """Return a copy of the sources in which every lane of a warp arrives at its barriers."""
        with self._copying:
            copy = self.folder / "cuda_src"
            if not copy.exists():
                shutil.copytree(source_root(), copy)
                header = copy / "common" / "warp_arrive.cuh"
                text = header.read_text()
                changed = text.replace("EACH_LANE_ARRIVES = false", "EACH_LANE_ARRIVES = true")
                assert changed != text
                header.write_text(changed)
        return copy

    def run(
        self, names: Iterable[str], tool: str | None = None, *, limit: float, **wanted: Any
    ) -> Outcome:
        """Run cases for at most ``limit`` seconds, under a tool of compute-sanitizer or under none.

        ``wanted`` are further fields of `trial.Request`.
        """
        if self._closed:
            return Outcome(None, "", [])
        stem = self.folder / str(next(self._numbers))
        request = Request(list(names), f"{stem}.answers", **wanted)
        command = [
            *([sys.executable, "-m", "tools.trial"]),
            str(written(request, stem.with_suffix(".json"))),
        ]
        if tool is not None:
            options = ["--tool", tool, "--error-exitcode", str(_FOUND), "--print-limit", "0"]
            options += TOOLS[tool]
            # Without CuPy's own kernels, which are most of all launches. The planted races show
            # that our kernels pass this filter.
            for name in source_names():
                options += ["--kernel-name", f"kernel_substring={name}"]
            command = ["compute-sanitizer", *options, *command]
        sources = {"SPARSEGPU_CUDA_SRC": str(self._lanes_arrive())} if tool == "racecheck" else {}
        with self.gpus.one() as gpu, open(f"{stem}.log", "w+") as log:
            started = time.perf_counter()
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **sources, **gpu},
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # not a session: what ends the run's session ends these, too
            )
            self._running.add(process)
            try:
                status: int | None = process.wait(0 if self._closed else limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = None
            self._running.discard(process)
            seconds = time.perf_counter() - started
            log.seek(0)
            text = log.read()
        what = ("unchanged" if request.kernel is None else request.kernel) + (
            "" if request.barrier is None else f" without barrier {request.barrier}"
        )
        print(
            f"  {tool or 'plain'}, {what}: {len(request.cases)} cases, {seconds:.1f} s", flush=True
        )
        path = Path(request.answers)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return Outcome(status, text, [json.loads(line) for line in lines if line.endswith("\n")])


def ran(outcome: Outcome, found: Findings) -> bool:
    """Return whether a tool ran to the end, with the exit status that belongs to its findings."""
    something = found.harmless or bool(found.failures())
    ends = {0, _FOUND} if something else {0}
    return outcome.change is not None and outcome.status in ends and bool(found.summaries)


def differs(outcome: Outcome, *, ends: bool = False) -> bool:
    """Return whether a changed kernel gave other bits, or failed where the unchanged one had not.

    ``ends``: the unchanged kernel ended within the time limit, so a trial that was stopped counts
    as a difference, too. (Under racecheck it may only have been slow.)
    """
    if outcome.change is not None:
        return outcome.change["differing"] > 0
    ran_whole = "case" in (outcome.answers[-1] if outcome.answers else {})
    if outcome.status is None:
        return ran_whole and ends
    return ran_whole and "CUDA" in outcome.log


def passed_by_none(barriers: list[Barrier], change: dict[str, Any] | None) -> list[str]:
    """Return the barriers that no warp passed in a trial with delays that ran to the end.

    Those in functions of headers that the kernel does not call are left out.
    """
    if change is None:
        return []
    passes = zip(barriers, change["passes"], strict=True)
    return [barrier.label for barrier, count in passes if not count and barrier.used]


def steady(outcome: Outcome) -> bool:
    """Return whether a trial launched the kernel, with the same bits every time."""
    change = outcome.change
    return change is not None and not change["differing"] and change["launches"] > 0


def summary_of(outcome: Outcome, chosen: int, removed: int | None) -> str:
    """Return a summary of a trial with delays."""
    change = outcome.change
    if change is None:
        ended = "was stopped" if outcome.status is None else f"ended with {outcome.status}"
        return f"{ended}: {last_lines(outcome.log)}"
    same = change["rounds"] * chosen - change["differing"]
    facts = (
        f"{change['rounds']} rounds of {chosen} cases, {change['launches']} launches: "
        f"{same} results of the same bits, {change['differing']} of others"
    )
    if removed is not None:
        facts += f"; warps passed its place {change['passes'][removed]} times"
    elif change["passes"]:
        facts += f"; warps passed each barrier at least {min(change['passes'])} times"
    return facts


def last_lines(log: str) -> str:
    """Return the last lines of a log that are not blank."""
    lines = [line for line in log.splitlines() if line.strip("= \t")]
    return " | ".join(lines[-3:]) or "no output"
