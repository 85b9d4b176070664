"""Run and record what needs a GPU: ``python -m tools.gpu [PART ...] [--missing] [--seconds S]``.

The parts, all by default, in this order: doctor, the test suite, compute-sanitizer with its planted
data races, random calls on the GPU and on this machine's CPU, the benchmark, what each kernel path
gains, the profile of the Hopper product, the demo and the gallery; each is a process of its own.

With one GPU they take about an hour. Where there are several, tests and compute-sanitizer run on
all of them, and so do the parts that measure, from the benchmark on, with one process a GPU.

``--missing`` leaves out what the record has of these sources: of the benchmark the sections, of
compute-sanitizer the kernels. ``--seconds`` begins nothing later, neither a part nor, within one, a
section or a share of the kernels. So some short runs record what one long run does. Exits 1 and
names the parts that failed or were not begun, if any.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sparsegpu.benchmark.cases import SECTIONS

from .gpus import Gpus
from .record import ROOT, content_hashes, is_of_these_sources, record, record_of_this_gpu

_NOT_BEGUN = -(10**6)  # no exit status
_A_SECTION = 20.0  # seconds that a section of the benchmark takes, where that is not known


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a part is asked for.

    Attributes
    ----------
    known : mapping
        The record whose sections need not be run again: empty unless ``--missing``.
    deadline : float
        When nothing more is begun, by `time.perf_counter`.
    gpus : Gpus
    """

    known: Mapping[str, Any]
    deadline: float
    gpus: Gpus

    def lacks(self, section: str, *, of: str = "") -> bool:
        """Return whether a section is unknown, or one of its parts (``of`` it)."""
        found = self.known.get(of, {}).get(section) if of else self.known.get(section)
        return not found or not is_of_these_sources(found)

    @property
    def seconds(self) -> float:
        """Those that are left."""
        return self.deadline - time.perf_counter()

    def limit(self, option: str) -> list[str]:
        """Return an option with the seconds that are left."""
        return [] if math.isinf(self.seconds) else [option, f"{self.seconds:.0f}"]

    def measure(self, *words: str, limit: str | None = None) -> int:
        """Do what `run` does, alone on a GPU; ``limit`` is the option for the time that is left."""
        with self.gpus.one() as environment:
            if self.seconds <= 0:
                return _NOT_BEGUN
            return run(*words, *(self.limit(limit) if limit else []), environment=environment)


def run(*words: str, environment: Mapping[str, str] = MappingProxyType({})) -> int:
    """Run a Python module in the checkout and return its exit status."""
    print(f"\n== {' '.join(words)}", flush=True)
    command, variables = [sys.executable, "-m", *words], {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


def doctor(wanted: Wanted) -> int:
    """Look whether this machine's GPU works."""
    return run("sparsegpu", "doctor")


def suite(wanted: Wanted) -> int:
    """Run the tests, but those of the other engines, which CI runs."""
    if not wanted.lacks("tests"):
        found = wanted.known["tests"]
        if found["exit"] == 0 and found["content"]["tests"] == content_hashes()["tests"]:
            return 0
    on_the_gpu = "not [reference and not [cpu and not emulated"
    options = ("-q", "-n", "auto", "--dist", "worksteal", "-k", on_the_gpu)
    return run("pytest", *options, "--record", "tests")


def sanitizer(wanted: Wanted) -> int:
    """Run compute-sanitizer over every kernel."""
    resume = []
    if not wanted.lacks("sanitizer"):
        found = wanted.known["sanitizer"]
        if found.get("not yet looked at") == [] and not found["failures"]:
            return 0
        if not found["failures"]:  # what was mended is looked at as a whole
            resume = ["--resume"]
    return run("tools.sanitize", *resume, *wanted.limit("--seconds"))


def fuzz(wanted: Wanted) -> int:
    """Run random calls on the GPU."""
    if not wanted.lacks("fuzz"):
        return 0
    return run("tools.fuzz", "-j", "16", "--record", "--cases", "20000", "--engine", "cuda")


def fuzz_cpu(wanted: Wanted) -> int:
    """Run random calls on the CPU."""
    if not wanted.lacks("fuzz_cpu"):
        return 0
    return run("tools.fuzz", "-j", "16", "--record", "--cases", "100000")


def race(wanted: Wanted) -> int:
    """Run the benchmark, on each GPU some sections."""
    left = [section for section in SECTIONS if wanted.lacks(section, of="race")]
    recorded = record_of_this_gpu().get("race", {})
    seconds = {name: recorded.get(name, {}).get("seconds", _A_SECTION) for name in left}
    shares = [share for share in _shared_out(seconds, wanted.gpus.count) if share]

    def measured(share: list[str]) -> int:
        only = [word for section in share for word in ("--only", section)]
        return wanted.measure("benchmarks.race", *only, limit="--limit")

    with ThreadPoolExecutor(max(len(shares), 1)) as pool:
        return next((status for status in pool.map(measured, shares) if status), 0)


def _shared_out(seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Return names in shares that take about the same time: long ones first, to who has least."""
    shares: list[list[str]] = [[] for _ in range(count)]
    for name in sorted(seconds, key=seconds.__getitem__, reverse=True):
        min(shares, key=lambda share: sum(map(seconds.__getitem__, share))).append(name)
    return shares


def paths(wanted: Wanted) -> int:
    """Measure what each kernel path gains over the next one."""
    return wanted.measure("benchmarks.paths") if wanted.lacks("paths") else 0


def profile(wanted: Wanted) -> int:
    """Profile the Hopper product."""
    return wanted.measure("benchmarks.profile") if wanted.lacks("profile") else 0


def demo(wanted: Wanted) -> int:
    """Run the demo and record its tables."""
    if not wanted.lacks("demo"):
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "demo.json")
        status = wanted.measure("sparsegpu", "demo", "--device", "gpu", "--json", str(path))
        if status == 0:
            record("demo", json.loads(path.read_text()))
    return status


def gallery(wanted: Wanted) -> int:
    """Run the gallery's pages and record what they print and draw."""
    return wanted.measure("tools.gallery")


#: All GPUs are one's after the other; then those that measure, of which some run at once.
_ON_ALL = (doctor, suite, sanitizer, fuzz, fuzz_cpu)
_ON_ONE = (race, paths, profile, demo, gallery)
PARTS: dict[str, Callable[[Wanted], int]] = {part.__name__: part for part in _ON_ALL + _ON_ONE}


def main(arguments: list[str] | None = None) -> int:
    """Run parts, print how each ended, and return 1 if one failed or was not begun."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--missing", action="store_true", help="only what is not recorded")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, metavar="S", help="begin nothing later"
    )
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.parts) - set(PARTS)):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    deadline, gpus = time.perf_counter() + given.seconds, Gpus()

    def ended(name: str) -> str:
        begun = time.perf_counter()
        known = record_of_this_gpu() if given.missing else {}
        status = _NOT_BEGUN if begun >= deadline else PARTS[name](Wanted(known, deadline, gpus))
        if status == _NOT_BEGUN:
            return f"{name}: not begun"
        how = "passed" if status == 0 else f"FAILED with status {status}: its output says why"
        return f"{name}: {how} ({time.perf_counter() - begun:.0f} s)"

    asked = [part for part in PARTS if part in (given.parts or PARTS)]
    at_once = [part for part in asked if PARTS[part] in _ON_ONE]
    told = [ended(part) for part in asked if part not in at_once]
    with ThreadPoolExecutor(gpus.count) as pool:
        told += pool.map(ended, at_once)
    print("\n== summary", *told, sep="\n")
    return int(any(": passed" not in line for line in told))


if __name__ == "__main__":
    sys.exit(main())
