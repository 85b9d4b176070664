"""Run and record everything that needs a GPU: ``python -m tools.gpu``.

Runs doctor, the test suite, the demo, the gallery, the benchmark, the profile of the Hopper
product, random calls and compute-sanitizer with its planted data races, each in a process of its
own. Exits 1 and names the parts that failed, if any.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .record import ROOT, record


def run(*words: str) -> int:
    """Run a Python module in the checkout and return its exit status."""
    print(f"\n== {' '.join(words)}", flush=True)
    return subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=False).returncode


def demo() -> int:
    """Run the demo and record its tables."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "demo.json")
        status = run("sparsegpu", "demo", "--device", "gpu", "--json", str(path))
        if status == 0:
            record("demo", json.loads(path.read_text()))
    return status


_FUZZ = ("tools.fuzz", "-j", "16", "--record")
PARTS: dict[str, Callable[[], int]] = {
    "doctor": partial(run, "sparsegpu", "doctor"),
    "tests": partial(run, "pytest", "-q", "-n", "auto", "--record", "tests"),
    "demo": demo,
    "gallery": partial(run, "tools.gallery"),
    "race": partial(run, "benchmarks.race"),
    "fuzz": partial(run, *_FUZZ, "--cases", "20000", "--engine", "cuda"),
    "fuzz_cpu": partial(run, *_FUZZ, "--cases", "100000"),
    "profile": partial(run, "benchmarks.profile"),
    "paths": partial(run, "benchmarks.paths"),
    "sanitizer": partial(run, "tools.sanitize"),
}


def main() -> int:
    """Run every part, print how each ended, and return 1 if one failed."""
    ended = []
    for name, part in PARTS.items():
        started = time.perf_counter()
        status = part()
        seconds = time.perf_counter() - started
        ended.append((name, status, seconds))
    print("\n== summary")
    for name, status, seconds in ended:
        how = "passed" if status == 0 else f"FAILED with status {status}: its output says why"
        print(f"{name}: {how} ({seconds:.0f} s)")
    return int(any(status for _, status, _ in ended))


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tools.gpu", description=__doc__).parse_args()
    sys.exit(main())
