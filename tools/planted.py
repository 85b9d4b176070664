"""Plant bugs in a copy of the package, one at a time, and check that the tests fail.

    python -m tools.planted [WORD ...] [--list]

``tests/planted/*.toml`` lists the bugs: a text in a source file, its replacement, and the tests of
which one must fail. WORDs choose the bugs with one of them in file, tests or description. The copy
is temporary; the checkout is only read. Exit code 1 when no test fails for a bug.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .record import ROOT

_COPIED = ("sparsegpu", "tests", "benchmarks", "tools", "cuda_src", "setup.cfg", "pyproject.toml")
_LIMIT_S = 300  # a bug may also cause an endless loop


@dataclass(frozen=True)
class Bug:
    """A text that occurs once in a file of the package or in a kernel, and its replacement."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def path(self, root: Path) -> Path:
        """Return the file in a checkout."""
        return root / ("" if self.file.startswith("cuda_src/") else "sparsegpu") / self.file

    def planted(self, root: Path) -> str:
        """Return the file with the bug in it."""
        text = self.path(root).read_text()
        if text.count(self.old) != 1:
            raise LookupError(f"{self.what}: {text.count(self.old)} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def bugs(root: Path = ROOT) -> list[Bug]:
    """Return the list of bugs."""
    found: list[Bug] = []
    for path in sorted((root / "tests" / "planted").glob("*.toml")):
        entries = tomllib.loads(path.read_text())["bug"]
        found += [Bug(**entry | {"tests": tuple(entry["tests"].split())}) for entry in entries]
    return found


@contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    """Yield a copy of what the tests need, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="sparsegpu-planted-") as scratch:
        for name in _COPIED:
            copy = shutil.copytree if (root / name).is_dir() else shutil.copy2
            copy(root / name, Path(scratch, name))
        yield Path(scratch)


def run_tests(root: Path, tests: tuple[str, ...], kernels: Path) -> tuple[int, str]:
    """Return the exit status of the tests (< 0: by a signal, or no end) and the first failure.

    ``kernels`` is numba's cache, which checks the date of a function's own file only: a bug in a
    function that others call needs an empty one.
    """
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-rfE"]
    command += [f"tests/{test}" for test in tests]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kernels), "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return -1, "does not end"
    if done.returncode < 0:
        return done.returncode, f"signal {-done.returncode}"
    failed = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", done.stdout, re.MULTILINE)
    return done.returncode, failed[1] if failed else done.stdout[-2000:] + done.stderr[-2000:]


def caught(bug: Bug, root: Path) -> str | None:
    """Plant a bug in a copy and remove it again; return the test that failed, or None."""
    path, planted = bug.path(root), bug.planted(root)
    whole, kernels = path.read_bytes(), root / "kernels"
    if bug.file.startswith("engines/cpu"):
        kernels = root / "kernels-planted"
    dates = path.stat()
    try:
        path.write_text(planted)
        code, failed = run_tests(root, bug.tests, kernels)
    finally:
        path.write_bytes(whole)
        os.utime(path, ns=(dates.st_atime_ns, dates.st_mtime_ns))
        shutil.rmtree(root / "kernels-planted", ignore_errors=True)
    if code > 1:  # nothing was tested
        raise RuntimeError(f"{bug.what}: pytest ends with {code}\n{failed}")
    return failed if code else None


def main(arguments: list[str] | None = None) -> int:
    """Plant the chosen bugs, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tools.planted", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--list", action="store_true", help="show the list and stop")
    options = parser.parse_args(arguments)
    chosen = []
    for bug in bugs():
        named = " ".join((bug.file, bug.what, *bug.tests))
        if not options.words or any(word in named for word in options.words):
            chosen.append(bug)
    if options.list:
        print("\n".join(f"{bug.file}: {bug.what}" for bug in chosen))
        return 0
    survived = 0
    with copy_of(ROOT) as root:
        every = tuple(dict.fromkeys(test for bug in chosen for test in bug.tests))
        code, failed = run_tests(root, every, root / "kernels")
        if code:
            raise RuntimeError(f"the tests fail without a bug: {failed}")
        for number, bug in enumerate(chosen, 1):
            noticed = caught(bug, root)
            survived += noticed is None
            verdict = f"caught by {noticed}" if noticed else "SURVIVED"
            print(f"{number:3} {bug.file}: {bug.what}: {verdict}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} caught")
    return survived > 0


if __name__ == "__main__":
    sys.exit(main())
