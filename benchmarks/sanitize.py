"""compute-sanitizer over every kernel, with proofs that a race would be seen.

``python -m benchmarks.sanitize [KERNEL ...]`` does, for all kernels or those named:

1. *Survey*: runs the cases of `benchmarks.small_cases`; tells which kernels each reaches.
2. *Inspection*: memcheck and racecheck over all of them, on as many thread blocks as the engine
   launches and on two that take all tiles, with the same bits every time.
3. *Planted races*: takes out each barrier of each kernel, one at a time, and runs some cases that
   reach it under racecheck. The removal is seen by "racecheck", when it reports a hazard in that
   kernel, or by "results", when they are not the same bits or the kernel fails.
4. *Delays*: lets each warp sleep at random around every barrier. A whole kernel must give the same
   bits in 1,000 such runs. Without a barrier that racecheck does not miss (it passes over atomics,
   and does not know when an asynchronous copy ends) some must differ: "delays".

Where no removal in a kernel is seen, clean runs of it are no evidence, and the outcome is failure.
Every part is recorded as soon as it is known, in one section.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from .barriers import Barrier, find_barriers
from .record import ROOT, record
from .small_cases import cases
from .trial import Request, written

_SOURCES = ROOT / "cuda_src"
_SHARDS = 7  # of the cases, each a process
_PROCESSES = 14
_DELAYED_PROCESSES = 7  # beyond that they only wait for each other's turn on the GPU
_CASES_A_KERNEL = 6
_ROUNDS = 1000
_TOOLS = {
    "memcheck": [],
    "racecheck": ["--racecheck-report", "analysis", "--racecheck-detect-level", "warn"],
}


@dataclass(slots=True)
class Outcome:
    """How a trial ended: its exit status (None: stopped), what it printed and answered."""

    status: int | None
    log: str
    answers: list[dict[str, Any]]

    @property
    def change(self) -> dict[str, Any] | None:
        """What came of the changed kernel; None when that was not reached."""
        return next((a for a in self.answers if "rounds" in a), None)

    def digests(self) -> dict[str, str]:
        """Return the bits of each case's result, of the kernels as they are."""
        return {a["case"]: a["digest"] for a in self.answers if "case" in a}


class Lab:
    """Starts trials, each a process with an end in sight."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._numbers = count()

    def trial(
        self, names: Iterable[str], tool: str | None = None, *, limit: float, **wanted: Any
    ) -> Outcome:
        """Run cases under a tool of compute-sanitizer or none, for ``limit`` seconds at most.

        See `trial.Request` for what else can be wanted.
        """
        stem = self.folder / str(next(self._numbers))
        request = Request(list(names), f"{stem}.answers", **wanted)
        command = [
            *([sys.executable, "-m", "benchmarks.trial"]),
            str(written(request, stem.with_suffix(".json"))),
        ]
        if tool is not None:
            options = ["--tool", tool, "--error-exitcode", "9", *_TOOLS[tool]]
            if request.kernel is not None:
                options += ["--kernel-name", f"kernel_substring={request.kernel}"]
            command = ["compute-sanitizer", *options, *command]
        started = time.perf_counter()
        with open(f"{stem}.log", "w+") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                status: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = None
            log.seek(0)
            text = log.read()
        what = ("as it is" if request.kernel is None else request.kernel) + (
            "" if request.barrier is None else f" without barrier {request.barrier}"
        )
        seconds = time.perf_counter() - started
        print(
            f"  {tool or 'plain'}, {what}: {len(request.cases)} cases, {seconds:.1f} s", flush=True
        )
        path = Path(request.answers)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return Outcome(status, text, [json.loads(line) for line in lines if line.endswith("\n")])


@dataclass(slots=True)
class Report:
    """The recorded section, and why the run fails if it does."""

    kept: bool
    content: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def add(self, **parts: Any) -> None:
        """Add parts, print them, and record what is known so far."""
        self.content |= parts
        seconds = round(time.perf_counter() - self.started)
        for name, part in parts.items():
            print(f"[{seconds} s] {name}: {json.dumps(part, indent=1)}", flush=True)
        if self.kept:
            record("sanitizer", {**self.content, "failures": self.failures, "seconds": seconds})


def main(kernels: list[str]) -> int:
    """Run all parts; print why the run fails, if it does, and return the exit status."""
    report = Report(kept=not kernels)
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        reach = survey(lab, report, kernels)
        if not kernels:
            inspect(lab, report)
        barriers = {
            path.stem: found
            for path in sorted(_SOURCES.glob("*.cu"))
            if (found := find_barriers(path.stem, _SOURCES))
            and (path.stem in kernels if kernels else True)
            and path.stem in reach
        }
        seen = planted(lab, report, barriers, reach)
        delayed(lab, report, barriers, reach, seen)
    report.add(failures=report.failures)
    for reason in report.failures:
        print(f"sanitize: FAILED: {reason}")
    print(f"sanitize: {'failed' if report.failures else 'passed'}")
    return 1 if report.failures else 0


def survey(lab: Lab, report: Report, kernels: list[str]) -> dict[str, list[str]]:
    """Run all cases once; return for each kernel the cases that reach it."""
    reach: dict[str, list[str]] = {}
    wanted: set[str] = set(kernels)
    with ThreadPoolExecutor(_PROCESSES) as pool:
        outcomes = list(pool.map(lambda names: lab.trial(names, limit=120), _shards(2 * _SHARDS)))
    for outcome in outcomes:
        if outcome.status != 0:
            report.failures.append(f"the cases do not run: {_last_words(outcome.log)}")
        for answer in outcome.answers:
            wanted |= set(answer.get("wanted", []) if not kernels else [])
            for kernel in answer.get("kernels", []):
                reach.setdefault(kernel, []).append(answer["case"])
    order = {name: number for number, name in enumerate(cases())}
    reach = {kernel: sorted(names, key=order.__getitem__) for kernel, names in reach.items()}
    if missed := sorted(wanted - set(reach)):
        report.failures.append(f"no case reaches {', '.join(missed)}")
    report.add(cases={kernel: len(names) for kernel, names in sorted(reach.items())})
    return reach


def inspect(lab: Lab, report: Report) -> None:
    """Run memcheck and racecheck over all cases."""
    tools = [(tool, names) for tool in _TOOLS for names in _shards(_SHARDS)]
    with ThreadPoolExecutor(_PROCESSES) as pool:
        outcomes = list(pool.map(lambda t: lab.trial(t[1], t[0], rounds=1, limit=180), tools))
    bits = []
    for tool in _TOOLS:
        mine = [o for (t, _), o in zip(tools, outcomes, strict=True) if t == tool]
        log = "".join(o.log for o in mine)
        ours, others = hazards(log)
        summaries = [line.strip("= ") for o in mine for line in _summaries(o.log)[-1:]]
        part = {"summary": [total(summaries)], "races in our kernels": ours}
        report.add(**{tool: {**part, "races in CuPy's": others}})
        for outcome in mine:
            theirs = tool == "racecheck" and outcome.status == 9 and hazards(outcome.log)[1]
            if outcome.change is None or not (outcome.status == 0 or (theirs and not ours)):
                report.failures.append(f"{tool}: {_last_words(outcome.log)}")
        if ours:
            report.failures.append(f"{tool} reports races in {', '.join(ours)}")
        if len(summaries) < len(mine):
            report.failures.append(f"{tool}: {len(mine) - len(summaries)} runs without a summary")
        bits.append({name: d for o in mine for name, d in o.digests().items()})
    same = bits[0] == bits[1] and all(o.change and not o.change["differing"] for o in outcomes)
    if not same:
        report.failures.append("the results are not the same bits under both tools")
    report.add(**{"same bits in both runs": same})


def planted(
    lab: Lab, report: Report, barriers: dict[str, list[Barrier]], reach: dict[str, list[str]]
) -> dict[str, dict[str, str]]:
    """Take out each barrier under racecheck; return by what that is seen."""
    plants = [(kernel, i) for kernel, found in barriers.items() for i in range(len(found))]

    def seen_by(plant: tuple[str, int]) -> str:
        kernel, i = plant
        outcome = lab.trial(
            some(reach[kernel]), "racecheck", kernel=kernel, barrier=i, rounds=1, limit=45
        )
        if hazards(outcome.log)[0]:  # only this kernel was checked
            return "racecheck"
        return "results" if differs(outcome) else "not seen"

    with ThreadPoolExecutor(_PROCESSES) as pool:
        outcomes = list(pool.map(seen_by, plants))
    seen: dict[str, dict[str, str]] = {kernel: {} for kernel in barriers}
    for (kernel, i), by in zip(plants, outcomes, strict=True):
        seen[kernel][barriers[kernel][i].label] = by
    report.add(barriers=seen)
    return seen


def delayed(
    lab: Lab,
    report: Report,
    barriers: dict[str, list[Barrier]],
    reach: dict[str, list[str]],
    seen: dict[str, dict[str, str]],
) -> None:
    """Run all kernels whole under random delays, and without what racecheck did not see."""
    trials: list[tuple[str, int | None]] = [(kernel, None) for kernel in barriers]
    trials += [
        (kernel, i)
        for kernel, found in barriers.items()
        for i, barrier in enumerate(found)
        if seen[kernel][barrier.label] != "racecheck"
    ]

    def outcome_of(which: tuple[str, int | None]) -> Outcome:
        kernel, i = which
        return lab.trial(
            some(reach[kernel]),
            kernel=kernel,
            barrier=i,
            delays=True,
            rounds=_ROUNDS,
            stop=i is not None,
            seconds=90 if i is None else 10,
            limit=120 if i is None else 30,
        )

    with ThreadPoolExecutor(_DELAYED_PROCESSES) as pool:
        outcomes = dict(zip(trials, pool.map(outcome_of, trials), strict=True))
    whole: dict[str, str] = {}
    without: dict[str, str] = {}
    for (kernel, i), outcome in outcomes.items():
        facts = said_of(outcome, len(some(reach[kernel])), i)
        if i is None:
            whole[kernel] = facts
            change = outcome.change
            if (
                change is None
                or change["differing"]
                or change["rounds"] < _ROUNDS
                or not change["launches"]
            ):
                report.failures.append(f"{kernel} under random delays: {facts}")
            continue
        label = barriers[kernel][i].label
        without[f"{kernel} {label}"] = facts
        steady = outcomes[kernel, None].change
        shown = steady and not steady["differing"] and differs(outcome, ends=True)
        if shown and seen[kernel][label] == "not seen":
            seen[kernel][label] = "delays"
    unseen = {
        f"{kernel} {label}": without[f"{kernel} {label}"]
        for kernel, by in seen.items()
        for label, how in by.items()
        if how == "not seen"
    }
    report.add(
        **{
            "barriers": seen,
            "whole under delays": whole,
            "without a barrier under delays": without,
            "not seen": unseen,
        }
    )
    for kernel, by in seen.items():
        if set(by.values()) == {"not seen"}:
            report.failures.append(
                f"{kernel}: no barrier's removal is seen, so clean runs are no evidence"
            )


def differs(outcome: Outcome, *, ends: bool = False) -> bool:
    """Return whether a changed kernel gave other bits, or failed where the whole one had not.

    ``ends``: the whole kernel came to its end in the same time, so no end is a difference, too.
    (Under racecheck a trial that is stopped may only have been slow.)
    """
    if outcome.change is not None:
        return outcome.change["differing"] > 0
    ran_whole = "case" in (outcome.answers[-1] if outcome.answers else {})
    if outcome.status is None:
        return ran_whole and ends
    return ran_whole and "CUDA" in outcome.log


def said_of(outcome: Outcome, chosen: int, removed: int | None) -> str:
    """Return the facts about a delayed trial, in words."""
    change = outcome.change
    if change is None:
        ended = "was stopped" if outcome.status is None else f"ended with {outcome.status}"
        return f"{ended}: {_last_words(outcome.log)}"
    same = change["rounds"] * chosen - change["differing"]
    facts = (
        f"{change['rounds']} rounds of {chosen} cases, {change['launches']} launches: "
        f"{same} results of the same bits, {change['differing']} of others"
    )
    if removed is not None:
        facts += f"; warps came past its place {change['passes'][removed]} times"
    elif change["passes"]:
        facts += f"; warps came past each barrier at least {min(change['passes'])} times"
    return facts


def some(names: list[str]) -> list[str]:
    """Return a few of a kernel's cases: those called long first, the others evenly spread."""
    long = [name for name in names if " long" in name][:_CASES_A_KERNEL]
    others = [name for name in names if name not in long]
    left = min(_CASES_A_KERNEL - len(long), len(others))
    return long + [others[i * len(others) // left] for i in range(left)]


def hazards(log: str) -> tuple[list[str], list[str]]:
    """Return where racecheck reports races: in code that may be ours, and in CuPy's kernels.

    A place may be a function that was inlined into a kernel, with its arguments: only what has a
    name like CuPy's kernels counts as CuPy's.
    """
    named = set(re.findall(r"Race reported between \w+ access at (.+?)\+0x", log))
    theirs = {name for name in named if re.fullmatch(r"cupy_\w+", name)}
    if "Race reported" in log and not named:
        named = {"a place that the log does not name in the usual way"}
    return sorted(named - theirs), sorted(theirs)


def total(summaries: list[str]) -> str:
    """Return the summaries of several runs as one, their numbers added."""
    summaries = [re.sub(r"(hazard|error|warning)\b", r"\1s", line) for line in summaries]
    if len({re.sub(r"\d+", "#", line) for line in summaries}) != 1:
        return "; ".join(summaries) or "no summary"
    sums = map(sum, zip(*([int(n) for n in re.findall(r"\d+", line)] for line in summaries)))
    return re.sub(r"\d+", lambda _: str(next(sums)), summaries[0])


def _summaries(log: str) -> list[str]:
    return [line for line in log.splitlines() if "SUMMARY" in line]


def _shards(number: int) -> list[list[str]]:
    """Return the cases' names dealt out, so that dear ones, which stand together, part."""
    names = list(cases())
    return [names[i::number] for i in range(number)]


def _last_words(log: str) -> str:
    """Return what a log says last that is not blank."""
    lines = [line for line in log.splitlines() if line.strip("= \t")]
    return " | ".join(lines[-3:]) or "no output"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
