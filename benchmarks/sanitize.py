"""compute-sanitizer over every kernel at small sizes, with a proof that it would see a race.

``python -m benchmarks.sanitize [KERNEL ...]`` runs memcheck and racecheck over the cases of
`benchmarks.small_cases`. Then it plants races: for every barrier of every kernel it copies
``cuda_src``, removes that one barrier and lets racecheck look again. The removal is seen when
racecheck reports a hazard in that kernel or, since it passes over atomics, when the results are no
longer the same bits. A kernel with barriers of which no removal is seen fails the run: there a
clean racecheck is no evidence. (Barriers that only part the tiles of one thread block cannot be
seen at sizes where each has one tile.) The outcome is recorded, barrier by barrier.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .record import ROOT, record
from .small_cases import section_of

_BARRIER = re.compile(r"^[^\S\n]*__sync(?:threads|warp)\(\);.*$", re.MULTILINE)
_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)
_CASES = [sys.executable, "-m", "benchmarks.small_cases"]


def main(kernels: list[str]) -> int:
    """Look for races and bad accesses, and plant races in the kernels named (all by default)."""
    status = 0 if kernels else inspect()
    planted = planted_races(kernels)
    for name, lines in planted.items():
        print(f"planted in {name}: {lines}")
        record(f"races planted in {name}", {"barriers": lines})
    blind = [name for name, lines in planted.items() if set(lines.values()) == {"not seen"}]
    print(f"kernels in which no planted race was seen: {', '.join(blind) or 'none'}")
    return 1 if status or blind else 0


def inspect() -> int:
    """Run memcheck and racecheck over everything; return 0 when clean and of the same bits."""
    report: dict[str, object] = {}
    clean = True
    digests = set()
    for tool in ("memcheck", "racecheck"):
        status, log = sanitizer(tool)
        summary = [line for line in log.splitlines() if "SUMMARY" in line]
        ours, others = hazards(log)
        report[tool] = {
            "summary": summary[-1:] or ["no summary"],
            "races in our kernels": ours,
            "races in CuPy's": others,
        }
        digests.add(digest(log))
        passed = bool(summary) and (status == 0 or (tool == "racecheck" and others and not ours))
        clean &= passed
        print(f"{tool}: {report[tool]}", flush=True)
        if not passed:
            print(log[-6000:])
    report["same bits in both runs"] = len(digests) == 1
    clean &= len(digests) == 1
    record("sanitizer", report)
    return 0 if clean else 1


def sanitizer(
    tool: str, *sections: str, source: Path | None = None, seconds: float | None = None
) -> tuple[int, str]:
    """Run the small cases under a tool; return its exit status and output.

    A run that takes longer than ``seconds`` (a kernel without its barrier may never end) is
    stopped, with status -1.
    """
    environment = dict(os.environ)
    if source is not None:
        environment["SPARSEGPU_CUDA_SRC"] = str(source)
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
    if tool == "racecheck":
        command += ["--racecheck-report", "analysis", "--racecheck-detect-level", "warn"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command, *_CASES, *sections],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = -1
        log.seek(0)
        return status, log.read()


def hazards(log: str) -> tuple[list[str], list[str]]:
    """Return the kernels in which racecheck reports a race: ours, and other libraries'."""
    named = set(re.findall(r"ace reported.* at (\w+)\+0x", log))
    ours = {path.stem for path in (ROOT / "cuda_src").glob("*.cu")}
    return sorted(named & ours), sorted(named - ours)


def digest(log: str) -> str:
    """Return the line that stands for the bits of all results."""
    return next((line for line in log.splitlines() if line.startswith("results ")), "no results")


def planted_races(kernels: list[str]) -> dict[str, dict[str, str]]:
    """Return, for each kernel and place of a barrier, by what its removal was seen."""
    barriers = {
        path.stem: barriers_of(path)
        for path in sorted((ROOT / "cuda_src").glob("*.cu"))
        if not kernels or path.stem in kernels
    }
    plants = [(name, *plant) for name, found in barriers.items() for plant in found]
    sections = sorted({section_of(name) for name, *_ in plants})
    whole = {section: digest(sanitizer("racecheck", section)[1]) for section in sections}
    with ThreadPoolExecutor(max_workers=10) as pool:
        seen = list(pool.map(lambda plant: race_is_seen(*plant, whole=whole), plants))
    result: dict[str, dict[str, str]] = {name: {} for name, found in barriers.items() if found}
    for (name, file, barrier), by in zip(plants, seen, strict=True):
        line = barrier.string.count("\n", 0, barrier.start()) + 1
        result[name][f"line {line}" if file == f"{name}.cu" else f"{file} line {line}"] = by
    return result


def barriers_of(kernel: Path) -> list[tuple[str, re.Match]]:
    """Return the barriers of a kernel and of the headers that it names, each with its file."""
    root, text = kernel.parent, kernel.read_text()
    files = [kernel.name, *_INCLUDE.findall(text)]
    return [
        (file, found) for file in files for found in _BARRIER.finditer((root / file).read_text())
    ]


def race_is_seen(name: str, file: str, barrier: re.Match, *, whole: dict[str, str]) -> str:
    """Remove one barrier and return by what that is seen; ``whole`` holds the right digests."""
    section = section_of(name)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "cuda_src")
        shutil.copytree(ROOT / "cuda_src", source)
        text = barrier.string[: barrier.start()] + barrier.string[barrier.end() :]
        (source / file).write_text(text)
        status, log = sanitizer("racecheck", section, source=source, seconds=120)
    if name in hazards(log)[0]:
        return "racecheck"
    # Only a run that came to its end says something about its results.
    finished = status in {0, 9} and digest(log) != "no results"
    return "results" if finished and digest(log) != whole[section] else "not seen"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
