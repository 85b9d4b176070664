"""compute-sanitizer over every kernel, with proof that it would find a data race.

``python -m tools.sanitize [KERNEL ...]`` does, for all kernels or those named:

1. *Survey*: runs the cases of `tools.small_cases` twice and lists the kernels that each launches,
   the first time and the second (a schedule is kept with its pattern and not made again).
2. *Inspection*: memcheck and racecheck over all cases, with the engine's own grids and with two
   thread blocks that take all tiles; the results must have the same bits every time. Failed
   look-ups of driver symbols and races in CuPy's own kernels are recorded, but are no failure.
3. *Delays*: each warp sleeps at random around every barrier. An unchanged kernel must give the same
   bits in 1,000 such runs, and every barrier must be passed by some warp.
4. *Planted races*: removes each barrier of each kernel, one at a time, and runs cases that pass it
   under racecheck. The removal is detected by "racecheck" if that reports a race that it does not
   report for the unchanged kernel, and by "results" if their bits differ or the kernel fails.
   racecheck ignores atomics and does not know when an asynchronous copy ends: a removal that it
   does not detect may be detected by "delays", if runs with delays differ.

If no removal in a kernel is detected, its clean runs prove nothing, and the outcome is failure.
All parts are recorded in one section, each as soon as it is known.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .barriers import Barrier, find_barriers
from .record import ROOT, record
from .sanitizer_log import Race, merged, read, total
from .small_cases import cases
from .trial_runner import (
    TOOLS,
    Outcome,
    TrialRunner,
    differs,
    last_lines,
    passed_by_none,
    ran,
    summary_of,
)

_SOURCES = ROOT / "cuda_src"
_SHARDS = 7  # of the cases, each a process
_PROCESSES = 14
_DELAYED_PROCESSES = 7  # more would only wait for the GPU
_CASES_A_KERNEL = 6
_LONG_CASES_A_KERNEL = 20
_CASES_A_BARRIER = 2  # each is a build of its own
_ROUNDS = 1000


@dataclass(slots=True)
class Report:
    """The recorded section, and the reasons for which the run fails."""

    kept: bool
    content: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def add(self, **parts: Any) -> None:
        """Add parts, print them, and record all parts so far."""
        self.content |= parts
        seconds = round(time.perf_counter() - self.started)
        for name, part in parts.items():
            print(f"[{seconds} s] {name}: {json.dumps(part, indent=1)}", flush=True)
        if self.kept:
            record("sanitizer", {**self.content, "failures": self.failures, "seconds": seconds})


def main(kernels: list[str]) -> int:
    """Run all parts, print the reasons for a failure, and return the exit status."""
    report = Report(kept=not kernels)
    with tempfile.TemporaryDirectory() as folder:
        runner = TrialRunner(Path(folder))
        signal.signal(signal.SIGTERM, lambda *_: stop(runner))
        reach = survey(runner, report, kernels)
        if not kernels:
            inspect(runner, report)
        barriers = {
            path.stem: found
            for path in sorted(_SOURCES.glob("*.cu"))
            if (found := find_barriers(path.stem, _SOURCES))
            and (path.stem in kernels if kernels else True)
            and path.stem in reach
        }
        whole = delayed(runner, report, barriers, reach)
        chosen = {
            (kernel, i): passing(whole[kernel], i) or some(reach[kernel])
            for kernel, found in barriers.items()
            for i in range(len(found))
        }
        seen = planted(runner, report, barriers, reach, chosen)
        undetected(runner, report, barriers, chosen, seen, whole)
    report.add(failures=report.failures)
    for reason in report.failures:
        print(f"sanitize: FAILED: {reason}")
    print(f"sanitize: {'failed' if report.failures else 'passed'}")
    return 1 if report.failures else 0


def stop(runner: TrialRunner) -> None:
    """End the run and all its processes on SIGTERM."""
    runner.close()
    sys.exit("sanitize: FAILED: terminated")


def survey(runner: TrialRunner, report: Report, kernels: list[str]) -> dict[str, list[str]]:
    """Run all cases; return for each kernel the cases that launch it in every run."""
    reach: dict[str, list[str]] = {}
    again: dict[str, list[str]] = {}
    wanted: set[str] = set(kernels)
    with ThreadPoolExecutor(_PROCESSES) as pool:
        outcomes = list(pool.map(lambda names: runner.run(names, limit=120), _shards(2 * _SHARDS)))
    for outcome in outcomes:
        if outcome.status != 0:
            report.failures.append(f"the cases do not run: {last_lines(outcome.log)}")
        for answer in outcome.answers:
            wanted |= set(answer.get("wanted", []) if not kernels else [])
            for found, key in ((reach, "kernels"), (again, "again")):
                for kernel in answer.get(key, []):
                    found.setdefault(kernel, []).append(answer["case"])
    if missed := sorted(wanted - set(reach)):
        report.failures.append(f"no case reaches {', '.join(missed)}")
    if once := [k for k in sorted(set(reach) - set(again)) if find_barriers(k, _SOURCES)]:
        report.failures.append(f"no case launches in every run: {', '.join(once)}")
    report.add(cases={kernel: len(names) for kernel, names in sorted(reach.items())})
    order = {name: number for number, name in enumerate(cases())}
    return {kernel: sorted(names, key=order.__getitem__) for kernel, names in again.items()}


def inspect(runner: TrialRunner, report: Report) -> None:
    """Run memcheck and racecheck over all cases."""
    tools = [(tool, names) for tool in TOOLS for names in _shards(_SHARDS)]
    with ThreadPoolExecutor(_PROCESSES) as pool:
        outcomes = list(pool.map(lambda t: runner.run(t[1], t[0], rounds=1, limit=180), tools))
    bits = []
    for tool in TOOLS:
        mine = [o for (t, _), o in zip(tools, outcomes, strict=True) if t == tool]
        each = [read(outcome.log) for outcome in mine]
        found = merged(each)
        report.add(
            **{
                tool: {
                    "summary": [total(found.summaries)],
                    "memory errors": found.memory,
                    "API errors": found.calls,
                    "look-ups of symbols that the driver lacks": found.look_ups,
                    "races in our kernels": found.ours,
                    "races in CuPy's": found.of_cupy,
                }
            }
        )
        report.failures += [f"{tool}: {failure}" for failure in found.failures()]
        report.failures += [
            f"{tool} did not run to its end: {last_lines(outcome.log)}"
            for outcome, its in zip(mine, each, strict=True)
            if not ran(outcome, its)
        ]
        bits.append({name: d for o in mine for name, d in o.digests().items()})
    same = bits[0] == bits[1] and all(o.change and not o.change["differing"] for o in outcomes)
    if not same:
        report.failures.append("the results are not the same bits under both tools")
    report.add(**{"same bits in both runs": same})


def delayed(
    runner: TrialRunner,
    report: Report,
    barriers: dict[str, list[Barrier]],
    reach: dict[str, list[str]],
) -> dict[str, Outcome]:
    """Run all kernels unchanged under random delays; return the outcomes."""

    def outcome_of(kernel: str) -> Outcome:
        names = some(reach[kernel])
        return runner.run(names, kernel=kernel, delays=True, rounds=_ROUNDS, seconds=130, limit=180)

    kernels = sorted(barriers, key=lambda kernel: -len(some(reach[kernel])))  # long ones first
    with ThreadPoolExecutor(_DELAYED_PROCESSES) as pool:
        whole = dict(zip(kernels, pool.map(outcome_of, kernels), strict=True))
    summaries = {
        kernel: summary_of(whole[kernel], len(some(reach[kernel])), None) for kernel in barriers
    }
    for kernel, summary in summaries.items():
        change = whole[kernel].change
        if not steady(whole[kernel]) or change is None or change["rounds"] < _ROUNDS:
            report.failures.append(f"{kernel} under random delays: {summary}")
        report.failures += [
            f"{kernel} {label}: no warp passed it"
            for label in passed_by_none(barriers[kernel], change)
        ]
    report.add(**{"whole under delays": summaries})
    return whole


def steady(outcome: Outcome) -> bool:
    """Return whether a trial launched the kernel, with the same bits every time."""
    change = outcome.change
    return change is not None and not change["differing"] and change["launches"] > 0


def passing(outcome: Outcome, barrier: int) -> list[str]:
    """Return a few of the cases in which warps passed a barrier in a trial with delays."""
    change = outcome.change
    return [] if change is None else change["passing"][barrier][:_CASES_A_BARRIER]


def planted(
    runner: TrialRunner,
    report: Report,
    barriers: dict[str, list[Barrier]],
    reach: dict[str, list[str]],
    chosen: dict[tuple[str, int], list[str]],
) -> dict[str, dict[str, str]]:
    """Remove each barrier under racecheck; return by what each removal is detected."""
    # Kernels with many barriers first: without one of them the other ones may wait until the limit.
    kernels = sorted(barriers, key=lambda kernel: -len(barriers[kernel]))
    plants: list[tuple[str, int | None]] = [(kernel, None) for kernel in kernels]
    plants += [(kernel, i) for kernel in kernels for i in range(len(barriers[kernel]))]

    def outcome_of(plant: tuple[str, int | None]) -> Outcome:
        kernel, i = plant
        names = some(reach[kernel]) if i is None else chosen[kernel, i]
        limit = 150 if i is None else 60
        return runner.run(names, "racecheck", kernel=kernel, barrier=i, rounds=1, limit=limit)

    with ThreadPoolExecutor(_PROCESSES) as pool:
        outcomes = dict(zip(plants, pool.map(outcome_of, plants), strict=True))
    seen: dict[str, dict[str, str]] = {kernel: {} for kernel in barriers}
    for (kernel, i), outcome in outcomes.items():
        whole = outcomes[kernel, None]
        if i is not None:
            seen[kernel][barriers[kernel][i].label] = detected_by(outcome, whole)
        elif not ran(whole, read(whole.log)) or differs(whole):
            report.failures.append(f"{kernel}, unchanged under racecheck: {last_lines(whole.log)}")
    report.add(barriers=seen)
    return seen


def detected_by(outcome: Outcome, whole: Outcome) -> str:
    """Return by what a removal is detected, given the trials without the barrier and with it.

    A race that racecheck also reports for the unchanged kernel does not count.
    """
    new: set[Race] = read(outcome.log).races - read(whole.log).races
    if whole.change is not None and any(not race.of_cupy for race in new):
        return "racecheck"
    return "results" if differs(outcome) and not differs(whole) else "not seen"


def undetected(
    runner: TrialRunner,
    report: Report,
    barriers: dict[str, list[Barrier]],
    chosen: dict[tuple[str, int], list[str]],
    seen: dict[str, dict[str, str]],
    whole: dict[str, Outcome],
) -> None:
    """Run under random delays the removals that racecheck did not detect."""
    missed = [
        (kernel, i)
        for kernel, found in barriers.items()
        for i, barrier in enumerate(found)
        if seen[kernel][barrier.label] != "racecheck"
    ]

    def outcome_of(which: tuple[str, int]) -> Outcome:
        kernel, i = which
        options = {"rounds": _ROUNDS, "stop": True, "seconds": 5, "limit": 45}
        return runner.run(chosen[which], kernel=kernel, barrier=i, delays=True, **options)

    with ThreadPoolExecutor(_DELAYED_PROCESSES) as pool:
        outcomes = dict(zip(missed, pool.map(outcome_of, missed), strict=True))
    without: dict[str, str] = {}
    for (kernel, i), outcome in outcomes.items():
        label = barriers[kernel][i].label
        without[f"{kernel} {label}"] = summary_of(outcome, len(chosen[kernel, i]), i)
        detected = steady(whole[kernel]) and differs(outcome, ends=True)
        if detected and seen[kernel][label] == "not seen":
            seen[kernel][label] = "delays"
    left = {
        f"{kernel} {label}": without[f"{kernel} {label}"]
        for kernel, by in seen.items()
        for label, how in by.items()
        if how == "not seen"
    }
    parts = {"without a barrier under delays": without, "not seen": left}
    report.add(barriers=seen, **parts)
    for kernel, by in seen.items():
        if set(by.values()) == {"not seen"}:
            report.failures.append(
                f"{kernel}: no barrier's removal is detected, so clean runs prove nothing"
            )


def some(names: list[str]) -> list[str]:
    """Return a few of a kernel's cases: long ones first, others evenly spaced."""
    long = [name for name in names if " long" in name][:_LONG_CASES_A_KERNEL]
    others = [name for name in names if " long" not in name]
    left = min(max(_CASES_A_KERNEL - len(long), 0), len(others))
    return long + [others[i * len(others) // left] for i in range(left)]


def _shards(number: int) -> list[list[str]]:
    """Return the cases' names in equal shares; slow cases are neighbours and are spread out."""
    names = list(cases())
    return [names[i::number] for i in range(number)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
