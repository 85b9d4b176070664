"""What README says of a recorded run of the test suite, whose files are recorded one by one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from .gpu_parts import test_files
from .record import is_of_these_sources

Files = Mapping[str, Mapping[str, Any]]
_WHOLE = "tests"  # in place of a file


def files_of(tests: Mapping[str, Any]) -> Files:
    """Return what is recorded of each file of tests.

    Until November 2026 the suite was recorded as a whole: all files are shown as one. When no file
    of benchmarks/results has that form any more this function can go.
    """
    if "passed" not in tests:
        return tests
    deselected, options = sum(tests["deselected"].values()), shlex.join(tests["options"])
    return {_WHOLE: {**tests, "deselected": deselected, "options": options}}


def not_recorded(files: Files) -> list[str]:
    """Return the files of tests of which nothing is recorded."""
    return [] if _WHOLE in files else [name for name in test_files() if name not in files]


def of_earlier_sources(files: Files) -> list[str]:
    """Return the files whose tests ran with another library or other kernels."""
    return [name for name, its in files.items() if not is_of_these_sources(its)]


def is_of_these(tests: Mapping[str, Any]) -> bool:
    """Return whether all files are recorded of this library and these kernels."""
    files = files_of(tests)
    return bool(files) and not not_recorded(files) and not of_earlier_sources(files)


def failures(tests: Mapping[str, Any]) -> int:
    """Return how many tests failed, of all files."""
    return sum(its["failed"] + its["error"] for its in files_of(tests).values())


def suite_figures(tests: Mapping[str, Any]) -> str:
    """Return the counts of all files, and when and with which sources their tests ran."""
    files = files_of(tests)
    total = {
        how: sum(its[how] for its in files.values())
        for how in ("passed", "failed", "error", "skipped", "deselected")
    }
    counts = [f"{total[how]} {how}" for how in ("passed", "failed", "skipped", "deselected")]
    if total["error"]:
        counts.insert(2, f"{total['error']} with an error")
    if reasons := {reason for its in files.values() for reason in its["skips"]}:
        counts[-2] += f" (for {len(reasons)} reasons, in the file)"
    if by := {expression(its["options"]) for its in files.values()} - {""}:
        counts[-1] += f" by {' or '.join(sorted(by))}"
    return f"Test suite on the GPU: {', '.join(counts)}; {state(files)}."


def expression(options: str) -> str:
    """Return by which option tests were deselected."""
    words = shlex.split(options)
    return f"`-k '{words[words.index('-k') + 1]}'`" if "-k" in words else ""


def state(files: Files) -> str:
    """Return when files were recorded, with which sources, and how many are not."""
    days = sorted({its["date"] for its in files.values()})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    earlier, missing = of_earlier_sources(files), not_recorded(files)
    if len(earlier) in {0, len(files)}:
        said = [f"{when}, {'earlier' if earlier else 'these'} sources"]
    else:
        said = [when, f"{len(earlier)} of {len(files)} files are of earlier sources"]
    if missing:
        said.append(f"{len(missing)} of {len(test_files())} files are not recorded")
    return "; ".join(said)
