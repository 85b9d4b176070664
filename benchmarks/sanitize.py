"""compute-sanitizer over every kernel at small sizes, with a proof that it would see a race.

``python -m benchmarks.sanitize`` runs memcheck and racecheck over the cases of
`benchmarks.small_cases`, then plants races: it copies ``cuda_src``, removes one barrier from every
kernel that has one, and racecheck must report a hazard in each. A kernel in which no removal is
reported is listed as such: a clean racecheck is no evidence for it. The result is recorded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .record import ROOT, record

_BARRIER = re.compile(r"^\s*__sync(?:threads|warp)\(\);\s*$", re.MULTILINE)
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
    seen, unseen = planted_races()
    report["planted"] = {"seen": seen, "not seen": unseen}
    print(f"planted races seen in {len(seen)} kernels: {', '.join(seen)}")
    print(f"not seen: {', '.join(unseen) or 'none'}")
    record("sanitizer", report)
    return 0 if clean and not unseen else 1


def sanitizer(tool: str, source: Path | None = None) -> tuple[int, str]:
    """Run the small cases under a tool; return its exit status and output."""
    environment = dict(os.environ)
    if source is not None:
        environment["SPARSEGPU_CUDA_SRC"] = str(source)
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
    if tool == "racecheck":
        command += ["--racecheck-report", "analysis", "--racecheck-detect-level", "warn"]
    result = subprocess.run(
        [*command, *_CASES], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return result.returncode, result.stdout + result.stderr


def planted_races(rounds: int = 4) -> tuple[list[str], list[str]]:
    """Remove the first, second, ... barrier of each kernel until racecheck reports each one."""
    barriers = {
        path.stem: list(_BARRIER.finditer(path.read_text()))
        for path in sorted((ROOT / "cuda_src").glob("*.cu"))
    }
    waiting = {name for name, found in barriers.items() if found}
    seen: set[str] = set()
    for number in range(rounds):
        trying = {name for name in waiting - seen if len(barriers[name]) > number}
        if not trying:
            break
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "cuda_src")
            shutil.copytree(ROOT / "cuda_src", source)
            for name in trying:
                path = source / f"{name}.cu"
                match = barriers[name][number]
                text = path.read_text()
                path.write_text(text[: match.start()] + text[match.end() :])
            _, log = sanitizer("racecheck", source)
        hazards = "\n".join(line for line in log.splitlines() if "ace reported" in line)
        seen |= {name for name in trying if re.search(rf"\b{name}\b", hazards)}
    return sorted(seen), sorted(waiting - seen)


if __name__ == "__main__":
    sys.exit(main())
