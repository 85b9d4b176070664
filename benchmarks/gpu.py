"""Everything a GPU has to say about this checkout, recorded: ``python -m benchmarks.gpu``.

Runs the test suite, the demo, the race against the peers, the profile of the Hopper product and
compute-sanitizer with its planted races, each as a process of its own, and exits 1 when one of them
fails, naming it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .record import ROOT, record

_PYTHON = [sys.executable, "-m"]


def run(*words: str) -> int:
    """Run a Python module in the checkout, its output passing through."""
    print(f"\n== {' '.join(words)}", flush=True)
    return subprocess.run([*_PYTHON, *words], cwd=ROOT, check=False).returncode


def demo() -> int:
    """Run the demo and record its tables."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "demo.json")
        status = run("sparsegpu", "demo", "--device", "gpu", "--json", str(path))
        if status == 0:
            record("demo", json.loads(path.read_text()))
    return status


PARTS: dict[str, Callable[[], int]] = {
    "doctor": partial(run, "sparsegpu", "doctor"),
    "tests": partial(run, "pytest", "-q", "-n", "auto", "--record", "tests"),
    "demo": demo,
    "race": partial(run, "benchmarks.race"),
    "profile": partial(run, "benchmarks.profile"),
    "sanitizer": partial(run, "benchmarks.sanitize"),
}


def main() -> int:
    """Run every part; say how each ended, and return 1 when any failed."""
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
    sys.exit(main())
