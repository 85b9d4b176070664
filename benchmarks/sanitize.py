"""compute-sanitizer over every kernel, with proofs that a race would be seen.

``python -m benchmarks.sanitize [KERNEL ...]`` does, for all kernels or those named:

1. *Survey*: runs the cases of `benchmarks.small_cases` twice; tells which kernels each reaches, and
   which it launches again (a plan that is kept with its pattern is made once).
2. *Inspection*: memcheck and racecheck over all of them, on as many thread blocks as the engine
   launches and on two that take all tiles, with the same bits every time. Symbols that a library
   looks up in the driver in vain, and races in CuPy's own kernels, are recorded and fail nothing.
3. *Delays*: lets each warp sleep at random around every barrier. A whole kernel must give the same
   bits in 1,000 such runs, and some warp must come past every barrier.
4. *Planted races*: takes out each barrier of each kernel, one at a time, and runs some cases that
   come past it under racecheck. The removal is seen by "racecheck", when it reports a race that it
   does not report in the whole kernel, or by "results", when they are not the same bits or the
   kernel fails. Without a barrier that racecheck does not miss (it passes over atomics, and does
   not know when an asynchronous copy ends) some runs with delays must differ: "delays".

Where no removal in a kernel is seen, clean runs of it are no evidence, and the outcome is failure.
Every part is recorded as soon as it is known, in one section.
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
from .lab import TOOLS, Lab, Outcome, differs, last_words, passed_by_none, ran, said_of
from .record import ROOT, record
from .sanitizer_log import Race, merged, read, total
from .small_cases import cases

_SOURCES = ROOT / "cuda_src"
_SHARDS = 7  # of the cases, each a process
_PROCESSES = 14
_DELAYED_PROCESSES = 7  # beyond that they only wait for each other's turn on the GPU
_CASES_A_KERNEL = 6
_LONG_CASES_A_KERNEL = 20
_CASES_A_BARRIER = 2  # each is a build of its own
_ROUNDS = 1000


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
        signal.signal(signal.SIGTERM, lambda *_: stop(lab))
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
        whole = delayed(lab, report, barriers, reach)
        chosen = {
            (kernel, i): passing(whole[kernel], i) or some(reach[kernel])
            for kernel, found in barriers.items()
            for i in range(len(found))
        }
        seen = planted(lab, report, barriers, reach, chosen)
        unseen(lab, report, barriers, chosen, seen, whole)
    report.add(failures=report.failures)
    for reason in report.failures:
        print(f"sanitize: FAILED: {reason}")
    print(f"sanitize: {'failed' if report.failures else 'passed'}")
    return 1 if report.failures else 0


def stop(lab: Lab) -> None:
    """End the run, as who started it asks, with all its processes."""
    lab.close()
    sys.exit("sanitize: FAILED: told to end")


def survey(lab: Lab, report: Report, kernels: list[str]) -> dict[str, list[str]]:
    """Run all cases; return for each kernel those that launch it whenever they run."""
    reach: dict[str, list[str]] = {}
    again: dict[str, list[str]] = {}
    wanted: set[str] = set(kernels)
    with ThreadPoolExecutor(_PROCESSES) as pool:
        outcomes = list(pool.map(lambda names: lab.trial(names, limit=120), _shards(2 * _SHARDS)))
    for outcome in outcomes:
        if outcome.status != 0:
            report.failures.append(f"the cases do not run: {last_words(outcome.log)}")
        for answer in outcome.answers:
            wanted |= set(answer.get("wanted", []) if not kernels else [])
            for found, key in ((reach, "kernels"), (again, "again")):
                for kernel in answer.get(key, []):
                    found.setdefault(kernel, []).append(answer["case"])
    if missed := sorted(wanted - set(reach)):
        report.failures.append(f"no case reaches {', '.join(missed)}")
    if once := [k for k in sorted(set(reach) - set(again)) if find_barriers(k, _SOURCES)]:
        report.failures.append(f"no case launches whenever it runs: {', '.join(once)}")
    report.add(cases={kernel: len(names) for kernel, names in sorted(reach.items())})
    order = {name: number for number, name in enumerate(cases())}
    return {kernel: sorted(names, key=order.__getitem__) for kernel, names in again.items()}


def inspect(lab: Lab, report: Report) -> None:
    """Run memcheck and racecheck over all cases."""
    tools = [(tool, names) for tool in TOOLS for names in _shards(_SHARDS)]
    with ThreadPoolExecutor(_PROCESSES) as pool:
        outcomes = list(pool.map(lambda t: lab.trial(t[1], t[0], rounds=1, limit=180), tools))
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
            f"{tool} did not run to its end: {last_words(outcome.log)}"
            for outcome, its in zip(mine, each, strict=True)
            if not ran(outcome, its)
        ]
        bits.append({name: d for o in mine for name, d in o.digests().items()})
    same = bits[0] == bits[1] and all(o.change and not o.change["differing"] for o in outcomes)
    if not same:
        report.failures.append("the results are not the same bits under both tools")
    report.add(**{"same bits in both runs": same})


def delayed(
    lab: Lab, report: Report, barriers: dict[str, list[Barrier]], reach: dict[str, list[str]]
) -> dict[str, Outcome]:
    """Run all kernels whole under random delays; return what came of each."""

    def outcome_of(kernel: str) -> Outcome:
        names = some(reach[kernel])
        return lab.trial(names, kernel=kernel, delays=True, rounds=_ROUNDS, seconds=130, limit=180)

    kernels = sorted(barriers, key=lambda kernel: -len(some(reach[kernel])))  # long ones first
    with ThreadPoolExecutor(_DELAYED_PROCESSES) as pool:
        whole = dict(zip(kernels, pool.map(outcome_of, kernels), strict=True))
    said = {kernel: said_of(whole[kernel], len(some(reach[kernel])), None) for kernel in barriers}
    for kernel, facts in said.items():
        change = whole[kernel].change
        if not steady(whole[kernel]) or change is None or change["rounds"] < _ROUNDS:
            report.failures.append(f"{kernel} under random delays: {facts}")
        report.failures += [
            f"{kernel} {label}: no warp came past it"
            for label in passed_by_none(barriers[kernel], change)
        ]
    report.add(**{"whole under delays": said})
    return whole


def steady(outcome: Outcome) -> bool:
    """Return whether a trial launched the kernel, always with the same bits."""
    change = outcome.change
    return change is not None and not change["differing"] and change["launches"] > 0


def passing(outcome: Outcome, barrier: int) -> list[str]:
    """Return a few of the cases in which warps came past a barrier, in a trial with delays."""
    change = outcome.change
    return [] if change is None else change["passing"][barrier][:_CASES_A_BARRIER]


def planted(
    lab: Lab,
    report: Report,
    barriers: dict[str, list[Barrier]],
    reach: dict[str, list[str]],
    chosen: dict[tuple[str, int], list[str]],
) -> dict[str, dict[str, str]]:
    """Take out each barrier under racecheck; return by what that is seen."""
    # Kernels of many barriers first: there it happens that without one the others wait for ever.
    kernels = sorted(barriers, key=lambda kernel: -len(barriers[kernel]))
    plants: list[tuple[str, int | None]] = [(kernel, None) for kernel in kernels]
    plants += [(kernel, i) for kernel in kernels for i in range(len(barriers[kernel]))]

    def outcome_of(plant: tuple[str, int | None]) -> Outcome:
        kernel, i = plant
        names = some(reach[kernel]) if i is None else chosen[kernel, i]
        limit = 150 if i is None else 60
        return lab.trial(names, "racecheck", kernel=kernel, barrier=i, rounds=1, limit=limit)

    with ThreadPoolExecutor(_PROCESSES) as pool:
        outcomes = dict(zip(plants, pool.map(outcome_of, plants), strict=True))
    seen: dict[str, dict[str, str]] = {kernel: {} for kernel in barriers}
    for (kernel, i), outcome in outcomes.items():
        whole = outcomes[kernel, None]
        if i is not None:
            seen[kernel][barriers[kernel][i].label] = seen_by(outcome, whole)
        elif not ran(whole, read(whole.log)) or differs(whole):
            report.failures.append(f"{kernel}, whole under racecheck: {last_words(whole.log)}")
    report.add(barriers=seen)
    return seen


def seen_by(outcome: Outcome, whole: Outcome) -> str:
    """Return by what a removal is seen, given the trials without the barrier and with it.

    Races that racecheck reports of the whole kernel, too, say nothing about the barrier.
    """
    new: set[Race] = read(outcome.log).races - read(whole.log).races
    if whole.change is not None and any(not race.of_cupy for race in new):
        return "racecheck"
    return "results" if differs(outcome) and not differs(whole) else "not seen"


def unseen(
    lab: Lab,
    report: Report,
    barriers: dict[str, list[Barrier]],
    chosen: dict[tuple[str, int], list[str]],
    seen: dict[str, dict[str, str]],
    whole: dict[str, Outcome],
) -> None:
    """Run kernels under random delays without what racecheck did not see."""
    missed = [
        (kernel, i)
        for kernel, found in barriers.items()
        for i, barrier in enumerate(found)
        if seen[kernel][barrier.label] != "racecheck"
    ]

    def outcome_of(which: tuple[str, int]) -> Outcome:
        kernel, i = which
        options = {"rounds": _ROUNDS, "stop": True, "seconds": 5, "limit": 45}
        return lab.trial(chosen[which], kernel=kernel, barrier=i, delays=True, **options)

    with ThreadPoolExecutor(_DELAYED_PROCESSES) as pool:
        outcomes = dict(zip(missed, pool.map(outcome_of, missed), strict=True))
    without: dict[str, str] = {}
    for (kernel, i), outcome in outcomes.items():
        label = barriers[kernel][i].label
        without[f"{kernel} {label}"] = said_of(outcome, len(chosen[kernel, i]), i)
        shown = steady(whole[kernel]) and differs(outcome, ends=True)
        if shown and seen[kernel][label] == "not seen":
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
                f"{kernel}: no barrier's removal is seen, so clean runs are no evidence"
            )


def some(names: list[str]) -> list[str]:
    """Return a few of a kernel's cases: those called long first, the others evenly spread."""
    long = [name for name in names if " long" in name][:_LONG_CASES_A_KERNEL]
    others = [name for name in names if " long" not in name]
    left = min(max(_CASES_A_KERNEL - len(long), 0), len(others))
    return long + [others[i * len(others) // left] for i in range(left)]


def _shards(number: int) -> list[list[str]]:
    """Return the cases' names dealt out, so that dear ones, which stand together, part."""
    names = list(cases())
    return [names[i::number] for i in range(number)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
