"""Everything a GPU has to say about this checkout, recorded: ``python -m benchmarks.gpu``.

Runs the test suite, compute-sanitizer with its planted races, the demo and the race against the
peers, each as a process of its own, and exits 1 when one of them fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
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


def main() -> int:
    """Run every part and return 1 when any failed."""
    status = {
        "doctor": run("sparsegpu", "doctor"),
        "tests": run("pytest", "-q", "-n", "auto", "--record", "tests"),
        "demo": demo(),
        "race": run("benchmarks.race"),
        "sanitizer": run("benchmarks.sanitize"),
    }
    print(status)
    return int(any(status.values()))


if __name__ == "__main__":
    sys.exit(main())
