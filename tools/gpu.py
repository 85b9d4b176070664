"""Run and record what needs a GPU: ``python -m tools.gpu [PART ...] [--missing] [--seconds S]``.

The parts, all by default, in this order: doctor, the test suite, compute-sanitizer with its planted
data races, random calls on the GPU and on this machine's CPU, the benchmark, what each kernel path
gains, the profile of the Hopper product, the demo and the gallery; each is a process of its own.

Together they take about an hour. ``--missing`` leaves out what the record has of these sources: of
the benchmark the sections, of compute-sanitizer the kernels. ``--seconds`` begins nothing later,
neither a part nor, within one, a section or a share of the kernels. So some short runs record what
one long run does. Exits 1 and names the parts that failed or were not begun, if any.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsegpu.benchmark.cases import SECTIONS

from .record import ROOT, content_hashes, is_of_these_sources, record, record_of_this_gpu


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a part is asked for.

    Attributes
    ----------
    known : mapping
        The record whose sections need not be run again: empty unless ``--missing``.
    seconds : float
        How long the part may go on beginning something.
    """

    known: Mapping[str, Any]
    seconds: float

    def lacks(self, section: str, *, of: str = "") -> bool:
        """Return whether a section is unknown, or one of its parts (``of`` it)."""
        found = self.known.get(of, {}).get(section) if of else self.known.get(section)
        return not found or not is_of_these_sources(found)

    def limit(self, option: str) -> list[str]:
        """Return an option with the seconds that are left."""
        return [] if math.isinf(self.seconds) else [option, f"{self.seconds:.0f}"]


def run(*words: str) -> int:
    """Run a Python module in the checkout and return its exit status."""
    print(f"\n== {' '.join(words)}", flush=True)
    return subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=False).returncode


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
    """Run the benchmark."""
    left = [section for section in SECTIONS if wanted.lacks(section, of="race")]
    if not left:
        return 0
    only = [word for section in left for word in ("--only", section)]
    return run("benchmarks.race", *only, *wanted.limit("--limit"))


def paths(wanted: Wanted) -> int:
    """Measure what each kernel path gains over the next one."""
    return run("benchmarks.paths") if wanted.lacks("paths") else 0


def profile(wanted: Wanted) -> int:
    """Profile the Hopper product."""
    return run("benchmarks.profile") if wanted.lacks("profile") else 0


def demo(wanted: Wanted) -> int:
    """Run the demo and record its tables."""
    if not wanted.lacks("demo"):
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "demo.json")
        status = run("sparsegpu", "demo", "--device", "gpu", "--json", str(path))
        if status == 0:
            record("demo", json.loads(path.read_text()))
    return status


def gallery(wanted: Wanted) -> int:
    """Run the gallery's pages and record what they print and draw."""
    return run("tools.gallery")


PARTS: dict[str, Callable[[Wanted], int]] = {
    part.__name__: part
    for part in (
        *(doctor, suite, sanitizer, fuzz, fuzz_cpu),
        *(race, paths, profile, demo, gallery),
    )
}


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
    started = time.perf_counter()
    ended = []
    for name, part in PARTS.items():
        if given.parts and name not in given.parts:
            continue
        begun = time.perf_counter()
        left = given.seconds - (begun - started)
        if left <= 0:
            ended.append(f"{name}: not begun")
            continue
        status = part(Wanted(record_of_this_gpu() if given.missing else {}, left))
        how = "passed" if status == 0 else f"FAILED with status {status}: its output says why"
        ended.append(f"{name}: {how} ({time.perf_counter() - begun:.0f} s)")
    print("\n== summary", *ended, sep="\n")
    return int(any(": passed" not in line for line in ended))


if __name__ == "__main__":
    sys.exit(main())
