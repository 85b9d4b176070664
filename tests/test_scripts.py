"""Scripts: asked for help, they say what they do and do nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sparsegpu

ROOT = Path(sparsegpu.__file__).parents[1]
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("benchmarks", "examples", "sparsegpu", "tools")
    for path in (ROOT / folder).rglob("*.py")
    if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
)


def test_there_are_scripts():
    assert "sparsegpu/__main__.py" in SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_runs_nothing(script, tmp_path):
    of_a_package = not script.startswith("examples")
    program = ["-m", script[:-3].replace("/", ".")] if of_a_package else [str(ROOT / script)]
    called = subprocess.run(
        [sys.executable, *program, "--help"],
        cwd=ROOT if of_a_package else tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "No module named 'cupy'" in called.stderr:
        pytest.skip("CuPy is not installed")
    assert called.returncode == 0, called.stderr
    assert called.stdout.startswith("usage: ") and not list(tmp_path.iterdir())
