"""Runs of a tool by a ``driver.py``, and what they leave behind when they are ended."""

import os
import subprocess
import sys
from pathlib import Path

from tools.record import ROOT

#: Tests of a suite that records, more than it has workers: of which none ends a second one before
#: the time is over.
LONG_TESTS = """\
import math
import time

import pytest
import suite_record

@pytest.mark.parametrize("n", range(99))
def test_waits(n, request):
    until = request.config.stash[suite_record._UNTIL]
    while time.monotonic() < until < math.inf:
        time.sleep(0.05)
"""


def start(folder: Path, *words: str, **variables: str) -> subprocess.Popen:
    """Start the driver in a folder, with our packages."""
    return subprocess.Popen(
        [sys.executable, "driver.py", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def left_running(folder: Path) -> list[str]:
    """Return the command lines of processes that run in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append((process / "cmdline").read_text())
        except OSError:  # it has ended, or is another user's
            continue
    return found
