"""compute-sanitizer over every kernel, with proof that it would find a data race.

``python -m tools.sanitize [KERNEL ...] [--seconds S] [--resume]`` does, for all kernels or those
named:

1. *Survey*: runs the cases of `tools.small_cases` twice and lists the kernels that each launches,
   the first time and the second (a schedule is kept with its pattern and not made again).
2. *Inspection*: memcheck and racecheck over all cases, with the engine's own grids and with two
   thread blocks that take all tiles; the results must have the same bits every time. Failed
   look-ups of driver symbols and races in CuPy's own kernels are recorded, but are no failure.
3. *Delays*: each warp sleeps at random around every barrier. An unchanged kernel must give the same
   bits in 1,000 rounds of a few cases, or in as many as a minute allows, which must be 1,000
   launches; and every barrier must be passed by some warp.
4. *Planted races*: removes each barrier of each kernel, one at a time, and runs cases that pass it
   under racecheck. The removal is detected by "racecheck" if that reports a race that it does not
   report for the unchanged kernel, and by "results" if their bits differ or the kernel fails.
   racecheck ignores atomics and does not know when an asynchronous copy ends: a removal that it
   does not detect may be detected by "delays", if runs with delays differ.

If no removal in a kernel is detected, its clean runs prove nothing, and the outcome is failure.

A run of all kernels is recorded in one section, the inspection as soon as it is known, then each
kernel as soon as all its planted races are. It takes some ten minutes on one GPU: ``--seconds``
begins no trial later, and ``--resume`` goes on where the record ends. Of other sources it keeps
the kernels whose own source and headers are the same, and inspects all cases again.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from .barriers import Barrier, find_barriers
from .record import ROOT
from .sanitizer_log import Race, merged, read, total
from .sanitizer_report import PASSED, REMOVALS, Report, source_hash
from .small_cases import cases
from .trial_runner import (
    TOOLS,
    Outcome,
    TrialRunner,
    differs,
    last_lines,
    passed_by_none,
    ran,
    steady,
    summary_of,
)

_SOURCES = ROOT / "cuda_src"
_SHARDS = 7  # of the cases, each a process, for each GPU
_PROCESSES = 14  # on a GPU
_DELAYED_PROCESSES = 7  # more would only wait for the GPU
_CASES_A_KERNEL = 6
_LONG_CASES_A_KERNEL = 20
_CASES_A_BARRIER = 2  # each is a build of its own
_ROUNDS = 1000
_LAUNCHES = 1000  # at least, where a minute is too short for the rounds
_UNSTEADY = " under random delays: "  # in a failure, after the kernel
#: Kernels a GPU that are looked at together: fewer leave processes idle more often.
_SHARE = 14

#: A kernel and the number of its barrier that is removed, or None: unchanged.
Plant = tuple[str, int | None]
Trial = TypeVar("Trial", bound=Hashable)


def main(kernels: list[str], seconds: float = math.inf, resume: bool = False) -> int:
    """Run all parts, print the reasons for a failure, and return the exit status."""
    report = Report.resumed() if resume else Report(kept=not kernels)
    with tempfile.TemporaryDirectory() as folder:
        runner = TrialRunner(Path(folder), _PROCESSES)
        signal.signal(signal.SIGTERM, lambda *_: stop(runner))
        harness = Harness(runner, report)
        harness.survey(kernels)
        if not kernels and not report.inspected:
            harness.inspect()
        harness.seconds = seconds
        report.add(**{"not yet looked at": harness.left()})
        for share in harness.shares():
            if report.seconds >= seconds:
                break
            harness.delay_undetected(harness.plant(harness.delay(share)))
    left = harness.left()
    report.add(**{"not yet looked at": left})
    for reason in report.failures:
        print(f"sanitize: FAILED: {reason}")
    if left:
        print(f"sanitize: {len(left)} kernels are left to --resume")
    print(f"sanitize: {'failed' if report.failures else 'unfinished' if left else 'passed'}")
    return 1 if report.failures or left else 0


def stop(runner: TrialRunner) -> None:
    """End the run and all its processes on SIGTERM."""
    runner.close()
    sys.exit("sanitize: FAILED: terminated")


@dataclass(slots=True)
class Harness:
    """The parts of a run, in order; each uses what earlier ones have found.

    Attributes
    ----------
    runner : TrialRunner
    report : Report
    seconds : float
        When no further trial is begun; the kernels that lack one are left to another run.
    reach : dict
        For each kernel the cases that launch it in every run.
    barriers : dict
        For each kernel that is looked at its barriers.
    seen : dict
        For each kernel and label of a barrier by what its removal was detected.
    """

    runner: TrialRunner
    report: Report
    seconds: float = math.inf
    reach: dict[str, list[str]] = field(default_factory=dict)
    barriers: dict[str, list[Barrier]] = field(default_factory=dict)
    seen: dict[str, dict[str, str]] = field(default_factory=dict)

    def survey(self, kernels: list[str]) -> None:
        """Run all cases; find the kernels, the cases that launch each, and the barriers."""
        reach: dict[str, list[str]] = {}
        again: dict[str, list[str]] = {}
        wanted: set[str] = set(kernels)
        run = partial(self.runner.run, limit=120)
        shards = _shards(2 * _SHARDS * self.runner.gpus.count)
        for _, outcome in self._parallel(_PROCESSES, run, shards):
            if outcome.status != 0:
                self._fail(f"the cases do not run: {last_lines(outcome.log)}")
            for answer in outcome.answers:
                wanted |= set(answer.get("wanted", []) if not kernels else [])
                for found, key in ((reach, "kernels"), (again, "again")):
                    for kernel in answer.get(key, []):
                        found.setdefault(kernel, []).append(answer["case"])
        if missed := sorted(wanted - set(reach)):
            self._fail(f"no case reaches {', '.join(missed)}")
        if once := [k for k in sorted(set(reach) - set(again)) if find_barriers(k, _SOURCES)]:
            self._fail(f"no case launches in every run: {', '.join(once)}")
        self.report.add(cases={kernel: len(names) for kernel, names in sorted(reach.items())})
        order = {name: number for number, name in enumerate(cases())}
        self.reach = {k: sorted(names, key=order.__getitem__) for k, names in again.items()}
        for kernel in sorted(self.reach.keys() & set(kernels or self.reach)):
            if found := find_barriers(kernel, _SOURCES):
                self.barriers[kernel] = found

    def inspect(self) -> None:
        """Run memcheck and racecheck over all cases."""
        number = _SHARDS * self.runner.gpus.count
        shards = [(names, tool) for tool in TOOLS for names in _shards(number)]
        run = partial(self.runner.run, rounds=1, limit=180)
        outcomes = dict(self._parallel(_PROCESSES, lambda shard: run(*shard), shards))
        bits = []
        for tool in TOOLS:
            mine = [outcomes[shard] for shard in shards if shard[1] == tool]
            each = [read(outcome.log) for outcome in mine]
            found = merged(each)
            part = {
                "summary": [total(found.summaries)],
                "memory errors": found.memory,
                "API errors": found.calls,
                "look-ups of symbols that the driver lacks": found.look_ups,
                "races in our kernels": found.ours,
                "races in CuPy's": found.of_cupy,
            }
            self.report.add(**{tool: part})
            for failure in found.failures():
                self._fail(f"{tool}: {failure}")
            for outcome, its in zip(mine, each, strict=True):
                if not ran(outcome, its):
                    self._fail(f"{tool} did not run to its end: {last_lines(outcome.log)}")
            bits.append({name: d for o in mine for name, d in o.digests().items()})
        names = bits[0].keys() | bits[1].keys()
        other = [name for name in sorted(names) if bits[0].get(name) != bits[1].get(name)]
        other += ["a run that did not end" for o in outcomes.values() if o.change is None]
        other += [
            f"{name}, repeated" for o in outcomes.values() if o.change for name in o.change["of"]
        ]
        if other:
            self._fail(f"not the same bits: {', '.join(other)}")
        self.report.add(**{"same bits in both runs": not other})

    def left(self) -> list[str]:
        """Return the kernels that the report does not know yet, those with most barriers first.

        Without one of its barriers a kernel may wait until the limit: what follows runs meanwhile.
        """
        known = self.report.content.get("barriers", {})
        kernels = [kernel for kernel in self.barriers if kernel not in known]
        return sorted(kernels, key=lambda kernel: -len(self.barriers[kernel]))

    def shares(self) -> list[list[str]]:
        """Return the kernels that are left, in groups that are looked at together."""
        kernels, size = self.left(), _SHARE * self.runner.gpus.count
        return [kernels[i : i + size] for i in range(0, len(kernels), size)]

    def delay(self, share: list[str]) -> list[str]:
        """Run kernels unchanged under random delays, and choose cases for each barrier.

        Returns the kernels for which there was time, as the next parts do. Of those that an
        earlier run delayed it is known.
        """
        known = self.report.content.get(PASSED, {})
        done = [kernel for kernel in share if kernel in known]
        few = {kernel: some(self.reach[kernel]) for kernel in share if kernel not in known}
        limits = {"rounds": _ROUNDS, "seconds": 60, "limit": 130}
        order = sorted(few, key=lambda kernel: -len(few[kernel]))  # long ones first

        def outcome_of(kernel: str) -> Outcome:
            return self.runner.run(few[kernel], kernel=kernel, delays=True, **limits)

        for kernel, outcome in self._parallel(_DELAYED_PROCESSES, outcome_of, order):
            self._delayed(kernel, outcome, few[kernel])
            done.append(kernel)
        return done

    def _delayed(self, kernel: str, outcome: Outcome, names: list[str]) -> None:
        """Report what a kernel did under delays, and the cases that are to detect removals."""
        barriers, change = self.barriers[kernel], outcome.change
        summary = summary_of(outcome, len(names), None)
        if not steady(outcome) or change is None or change["launches"] < _LAUNCHES:
            self._fail(f"{kernel}{_UNSTEADY}{summary}")
        for label in passed_by_none(barriers, change):
            self._fail(f"{kernel} {label}: no warp passed it")
        chosen = [passing(outcome, i) or names for i in range(len(barriers))]
        self.report.add(
            sources={kernel: source_hash(kernel)},
            **{PASSED: {kernel: chosen}, "whole under delays": {kernel: summary}},
        )

    def _cases_of(self, plant: Plant) -> list[str]:
        """Return the cases that are to detect a removal, or racecheck's of an unchanged kernel."""
        kernel, i = plant
        known: dict[str, list[list[str]]] = self.report.content[PASSED]
        return some(self.reach[kernel]) if i is None else known[kernel][i]

    def plant(self, share: list[str]) -> list[str]:
        """Remove each barrier under racecheck; return the kernels where it missed a removal.

        Of kernels whose removals an earlier run made, it is known.
        """
        known = self.report.content.get(REMOVALS, {})
        missed = [kernel for kernel in share if kernel in known]
        self.seen |= {kernel: dict(known[kernel]) for kernel in missed}
        new = [kernel for kernel in share if kernel not in known]
        plants: list[Plant] = [(kernel, None) for kernel in new]
        plants += [(kernel, i) for kernel in new for i in range(len(self.barriers[kernel]))]
        names = {plant: self._cases_of(plant) for plant in plants}

        def outcome_of(plant: Plant) -> Outcome:
            kernel, i = plant
            limits = {"rounds": 1, "limit": 150 if i is None else 60}
            return self.runner.run(names[plant], "racecheck", kernel=kernel, barrier=i, **limits)

        for kernel, outcomes in self._by_kernel(_PROCESSES, outcome_of, plants):
            whole = outcomes.pop(None)
            if not ran(whole, read(whole.log)) or differs(whole):
                self._fail(f"{kernel}, unchanged under racecheck: {last_lines(whole.log)}")
            labels = [barrier.label for barrier in self.barriers[kernel]]
            self.seen[kernel] = {
                labels[i]: detected_by(outcomes[i], whole) for i in range(len(labels))
            }
            removals = {kernel: dict(self.seen[kernel])}
            self.report.add(**{REMOVALS: removals})
            if set(self.seen[kernel].values()) == {"racecheck"}:
                self._finish(kernel)
            else:
                missed.append(kernel)
        return missed

    def delay_undetected(self, share: list[str]) -> None:
        """Run under random delays the removals that racecheck did not detect."""
        plants: list[Plant] = [
            (kernel, i)
            for kernel in share
            for i, barrier in enumerate(self.barriers[kernel])
            if self.seen[kernel][barrier.label] != "racecheck"
        ]
        names = {plant: self._cases_of(plant) for plant in plants}

        def outcome_of(plant: Plant) -> Outcome:
            kernel, i = plant
            limits = {"rounds": _ROUNDS, "stop": True, "seconds": 5, "limit": 45}
            return self.runner.run(names[plant], kernel=kernel, barrier=i, delays=True, **limits)

        for kernel, outcomes in self._by_kernel(_DELAYED_PROCESSES, outcome_of, plants):
            without: dict[str, str] = {}
            left: dict[str, str] = {}
            was_steady = not self.report.failed(f"{kernel}{_UNSTEADY}")
            for i, outcome in sorted(outcomes.items()):
                seen, label = self.seen[kernel], self.barriers[kernel][i].label
                name = f"{kernel} {label}"
                without[name] = summary_of(outcome, len(names[kernel, i]), i)
                if seen[label] == "not seen":
                    if was_steady and differs(outcome, ends=True):
                        seen[label] = "delays"
                    else:
                        left[name] = without[name]
            self._finish(kernel, **{"without a barrier under delays": without, "not seen": left})

    def _finish(self, kernel: str, **parts: dict[str, str]) -> None:
        """Record a kernel of which everything is known."""
        seen = self.seen[kernel]
        if set(seen.values()) == {"not seen"}:
            self._fail(f"{kernel}: no removal is detected, so clean runs prove nothing")
        self.report.forget(kernel)
        parts["barriers"], left = {kernel: seen}, [name for name in self.left() if name != kernel]
        self.report.add(**parts, **{"not yet looked at": left})

    def _parallel(
        self, processes: int, outcome_of: Callable[[Trial], Outcome], trials: Sequence[Trial]
    ) -> Iterator[tuple[Trial, Outcome]]:
        """Yield trials with their outcomes as they end, of which so many run on each GPU at a time.

        Those for which there was no time are left out.
        """

        def begun(trial: Trial) -> Outcome | None:
            return None if self.report.seconds > self.seconds else outcome_of(trial)

        with ThreadPoolExecutor(processes * self.runner.gpus.count) as pool:
            futures = {pool.submit(begun, trial): trial for trial in trials}
            for future in as_completed(futures):
                if (outcome := future.result()) is not None:
                    yield futures[future], outcome

    def _by_kernel(
        self, processes: int, outcome_of: Callable[[Plant], Outcome], plants: Sequence[Plant]
    ) -> Iterator[tuple[str, dict[Any, Outcome]]]:
        """Yield kernels as soon as all of their trials have ended, with these by their number."""
        outcomes: dict[str, dict[Any, Outcome]] = {}
        numbers = Counter(kernel for kernel, _ in plants)
        for (kernel, i), outcome in self._parallel(processes, outcome_of, plants):
            its = outcomes.setdefault(kernel, {})
            its[i] = outcome
            if len(its) == numbers[kernel]:
                yield kernel, its

    def _fail(self, reason: str) -> None:
        if reason not in self.report.failures:  # a resumed run may find it again
            self.report.failures.append(reason)


def passing(outcome: Outcome, barrier: int) -> list[str]:
    """Return a few of the cases in which warps passed a barrier in a trial with delays."""
    change = outcome.change
    return [] if change is None else change["passing"][barrier][:_CASES_A_BARRIER]


def detected_by(outcome: Outcome, whole: Outcome) -> str:
    """Return by what a removal is detected, given the trials without the barrier and with it.

    A race that racecheck also reports for the unchanged kernel does not count.
    """
    new: set[Race] = read(outcome.log).races - read(whole.log).races
    if whole.change is not None and any(not race.of_cupy for race in new):
        return "racecheck"
    return "results" if differs(outcome) and not differs(whole) else "not seen"


def some(names: list[str]) -> list[str]:
    """Return a few of a kernel's cases: long ones first, others evenly spaced."""
    long = [name for name in names if " long" in name][:_LONG_CASES_A_KERNEL]
    others = [name for name in names if " long" not in name]
    left = min(max(_CASES_A_KERNEL - len(long), 0), len(others))
    return long + [others[i * len(others) // left] for i in range(left)]


def _shards(number: int) -> list[tuple[str, ...]]:
    """Return the cases' names in equal shares; slow cases are neighbours and are spread out."""
    names = tuple(cases())
    return [names[i::number] for i in range(min(number, len(names)))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.sanitize", description=__doc__)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="all by default")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, metavar="S", help="begin no trial later"
    )
    parser.add_argument("--resume", action="store_true", help="go on where the record ends")
    given = parser.parse_args()
    if given.resume and given.kernels:
        parser.error("--resume goes on with all kernels: name none")
    sys.exit(main(given.kernels, given.seconds, given.resume))
