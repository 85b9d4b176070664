"""compute-sanitizer over every kernel at small sizes, with a proof that it would see a race.

``python -m benchmarks.sanitize`` runs memcheck and racecheck over the cases of
`benchmarks.small_cases`. Then it plants races: for every barrier of every kernel it copies
``cuda_src``, removes that one barrier and lets racecheck look again. A kernel with barriers in
which no removal is reported fails the run: there a clean racecheck is no evidence. (Barriers that
only part the tiles of one thread block cannot be seen at sizes where each has one tile.) The result
is recorded, barrier by barrier.
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
_CASES = [sys.executable, "-m", "benchmarks.small_cases"]


def main() -> int:
    """Run everything and return 0 when all is clean and every planted race was seen."""
    report: dict[str, object] = {}
    clean = True
    for tool in ("memcheck", "racecheck"):
        status, log = sanitizer(tool)
        summary = [line for line in log.splitlines() if "SUMMARY" in line]
        report[tool] = {"exit": status, "summary": summary[-1:] or ["no summary"]}
        clean &= status == 0 and bool(summary)
        print(f"{tool}: exit {status} {summary[-1:]}", flush=True)
        if status:
            print(log[-6000:])
    planted = planted_races()
    report["planted"] = planted
    blind = [name for name, lines in planted.items() if not any(lines.values())]
    for name, lines in planted.items():
        print(f"planted in {name}: seen {sum(lines.values())} of {len(lines)} barriers removed")
    print(f"kernels in which no planted race was seen: {', '.join(blind) or 'none'}")
    record("sanitizer", report)
    return 0 if clean and planted and not blind else 1


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


def planted_races() -> dict[str, dict[str, bool]]:
    """Return, for each kernel and line of a barrier, whether racecheck saw its removal."""
    barriers = {
        path.stem: list(_BARRIER.finditer(path.read_text()))
        for path in sorted((ROOT / "cuda_src").glob("*.cu"))
    }
    plants = [(name, barrier) for name, found in barriers.items() for barrier in found]
    with ThreadPoolExecutor(max_workers=12) as pool:
        seen = list(pool.map(lambda plant: race_is_seen(*plant), plants))
    result: dict[str, dict[str, bool]] = {name: {} for name, found in barriers.items() if found}
    for (name, barrier), caught in zip(plants, seen, strict=True):
        line = barrier.string.count("\n", 0, barrier.start()) + 1
        result[name][f"line {line}"] = caught
    return result


def race_is_seen(name: str, barrier: re.Match) -> bool:
    """Remove one barrier and return whether racecheck reports a hazard in that kernel."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "cuda_src")
        shutil.copytree(ROOT / "cuda_src", source)
        text = barrier.string[: barrier.start()] + barrier.string[barrier.end() :]
        (source / f"{name}.cu").write_text(text)
        _, log = sanitizer("racecheck", section_of(name), source=source, seconds=60)
    hazards = (line for line in log.splitlines() if "ace reported" in line)
    return any(re.search(rf"\b{name}\b", line) for line in hazards)


if __name__ == "__main__":
    sys.exit(main())
