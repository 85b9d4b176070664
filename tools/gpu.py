"""Run and record what needs a GPU: ``python -m tools.gpu [PART ...] [--missing] [--seconds S]``.

The parts, all by default, in this order: doctor, the test suite, compute-sanitizer with its planted
data races, random calls on the GPU and on this machine's CPU, the benchmark, what each kernel path
gains, the profile of the Hopper product, the demo and the gallery; each is a process of its own.

With one GPU they take about an hour. Where there are several, the parts up to the random calls run
on all of them, one part after the other. The others measure: their sections and pages are shared
out, each GPU has one process at a time, and one that fails is followed by another for what it left.

``--plan`` runs nothing and says what would run where, how long the last records say that it takes,
and what is recorded of these sources; CUDA_VISIBLE_DEVICES=0,1,2,3 plans for four GPUs anywhere.

``--missing`` leaves out what is recorded of these sources, whole and without a failure.
``--seconds`` begins nothing later: no part, test, section, page or planted race. SIGTERM ends all
processes, then tells what was done. What was recorded stays: files of tests, sections, pages and
kernels of compute-sanitizer one by one, other parts as a whole. So one command, given again, goes
on where a run was cut short. In ten minutes:

    timeout 570 python -m tools.gpu --missing --seconds 480

Exits 1 and names the parts that failed or were not finished, if any.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .gpu_parts import (
    ON_ALL,
    ON_ONE,
    PARTS,
    Evidence,
    entries,
    evidence_of,
    expected,
    found,
    left,
    needed,
    shared_out,
)
from .gpus import Gpus, model, visible
from .record import (
    RESULTS,
    ROOT,
    content_hashes,
    environment,
    record,
    tree_hash,
)
from .runner import NOT_BEGUN, UNFINISHED, Runner

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NAMED = 20  # of what is missing; of files of tests there are hundreds
_WELL = ("passed", "recorded")  # how a part ends well


@dataclass(slots=True)
class Parts:
    """Runs the parts.

    Attributes
    ----------
    runner : Runner
    gpus : Gpus
    gpu : str
        The model, after which the record is called.
    only_missing : bool
    """

    runner: Runner
    gpus: Gpus
    gpu: str
    only_missing: bool = False

    @property
    def evidence(self) -> Evidence:
        """What is recorded at this moment."""
        return evidence_of(self.gpu)

    def todo(self, part: str) -> dict[str, float]:
        """Return what of a part shall run, with the seconds that it should take."""
        known = self.evidence
        seconds = expected(part, known, gpus=self.gpus.count)
        missing = left(part, known) if self.only_missing else seconds
        return {entry: its for entry, its in seconds.items() if entry in missing}

    def shares(self, parts: Sequence[str]) -> list[dict[str, dict[str, float]]]:
        """Return for each GPU what it measures: for each part the entries and their seconds."""
        seconds = {(part, entry): s for part in parts for entry, s in self.todo(part).items()}
        shares: list[dict[str, dict[str, float]]] = []
        for share in shared_out(seconds, self.gpus.count):
            shares.append({})
            for part, entry in share:
                shares[-1].setdefault(part, {})[entry] = seconds[part, entry]
        return shares

    def words(self, part: str, entries: Mapping[str, float]) -> list[str]:
        """Return the module that does these entries of a part, and its arguments."""
        workers = str(self.gpus.workers)
        only = [word for entry in entries for word in ("--only", entry)]
        limit = self.runner.limit("--limit")
        match part:
            case "doctor":
                return ["sparsegpu", "doctor"]
            case "suite":
                # CI runs those of the other engines.
                on_the_gpu = "not [reference and not [cpu and not emulated"
                options = ["-q", "-n", workers, "--dist", "worksteal", "-k", on_the_gpu]
                if importlib.util.find_spec("pytest_timeout"):  # one that hangs is one failure
                    options += ["--timeout", "180", "--timeout-method", "thread"]
                options += ["--record", *self.runner.limit("--record-seconds")]
                # Each worker first has an equal share of all tests, in their order.
                shares = shared_out(entries, self.gpus.workers)
                return ["pytest", *options, *(file for share in shares for file in share)]
            case "sanitizer":
                its = self.evidence.get("sanitizer")
                # After a failure all is looked at again.
                goes_on = its and not its["failures"]
                resume = ["--resume"] if self.only_missing and goes_on else []
                return ["tools.sanitize", *resume, *self.runner.limit("--seconds")]
            case "fuzz":
                cases = ["--cases", "20000", "--engine", "cuda"]
                return ["tools.fuzz", "-j", workers, "--record", *cases]
            case "fuzz_cpu":
                return ["tools.fuzz", "-j", workers, "--record", "--cases", "100000"]
            case "gallery":
                return ["tools.gallery", *entries, *limit]
            case "profile":
                return ["benchmarks.profile"]
            case _:
                return [f"benchmarks.{part}", *only, *limit]

    def on_all(self, part: str) -> int:
        """Run a part that has all GPUs, and return the exit status."""
        todo = self.todo(part)
        if not todo:
            return 0
        # Each of its processes has a core, which threads of OpenBLAS would only wait for.
        environment = visible(*self.gpus.names) | {"OPENBLAS_NUM_THREADS": "1"}
        return self.runner.run(*self.words(part, todo), environment=environment)

    def on_one(
        self, part: str, entries: Mapping[str, float], environment: Mapping[str, str]
    ) -> int:
        """Do some entries of a part on a GPU, and return the first exit status that is not 0.

        Where a process fails, another goes on behind the first entry that is not recorded.
        """
        status, rest = 0, dict(entries)
        beside = f"[{next(iter(environment.values()), 'GPU')} {part}] "
        while rest:
            before, begun = self.evidence, self.in_time(part, rest)
            if not begun:
                ended = NOT_BEGUN
            elif part == "demo":
                ended = self._demo(environment, beside)
            else:
                words = self.words(part, {entry: rest[entry] for entry in begun})
                ended = self.runner.run(*words, environment=environment, beside=beside)
            if ended == NOT_BEGUN:
                return status or (ended if len(rest) == len(entries) else UNFINISHED)
            if ended:
                status, after = ended, self.evidence
                same = [e for e in begun if found(part, e, after) == found(part, e, before)]
                begun = [e for e in begun if e not in same[1:]]
            for entry in begun:
                del rest[entry]
        return status

    def in_time(self, part: str, entries: Mapping[str, float]) -> list[str]:
        """Return the entries that are begun: of the benchmark, which a limit cuts short, not all.

        Those are left out for which there is too little time, by the last records.
        """
        if part != "race":
            return list(entries)
        begun, seconds = [], self.runner.seconds
        for entry, its in entries.items():
            if its <= seconds:
                begun.append(entry)
                seconds -= its
        return begun

    def _demo(self, environment: Mapping[str, str], beside: str) -> int:
        """Run the demo and record its tables."""
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "demo.json")
            words = ("sparsegpu", "demo", "--device", "gpu", "--json", str(path))
            status = self.runner.run(*words, environment=environment, beside=beside)
            if status == 0:
                seconds = round(time.perf_counter() - began, 1)
                record("demo", {**json.loads(path.read_text()), "seconds": seconds})
        return status

    def plan(self, asked: Sequence[str]) -> list[str]:
        """Return lines that say what would run, and what is recorded of these sources."""
        known, count = self.evidence, self.gpus.count
        those = f" ({', '.join(self.gpus.names)})" if self.gpus.names else ""
        lines = [f"{self.gpu or 'no GPU is found'}: {count} GPU{'s' * (count > 1)}{those}"]
        for part in asked:
            if part != "doctor":
                of, missing = len(entries(part)), left(part, known)
                lines.append(f"  {part}: {of - len(missing)} of {of} recorded of these sources")
            lines += [f"  {part}: {name} is needed and not here" for name in needed(part)]
        total = 0.0
        for part in (part for part in asked if part in ON_ALL):
            if todo := self.todo(part):
                total += sum(todo.values())
                lines.append(f"  {total:5.0f} s  all GPUs: {part}, {sum(todo.values()):.0f} s")
        shares = self.shares([part for part in asked if part in ON_ONE])
        ends = [total]
        for number, share in enumerate(shares):
            its = sum(sum(seconds.values()) for seconds in share.values())
            ends.append(total + its)
            what = "; ".join(f"{part}: {', '.join(share[part])}" for part in share)
            name = (self.gpus.names or ["0"])[number]
            lines.append(f"  {total + its:5.0f} s  GPU {name}: {what or 'nothing'}")
        return [*lines, f"  {max(ends):5.0f} s in all, by the last records"]


def gpu_here() -> str:
    """Return the model of this machine's GPU as CUDA calls it, "" where it finds none."""
    try:
        return environment()["gpu"]
    except (ImportError, RuntimeError) as error:  # no CuPy, or CUDA's; doctor says more
        print(f"the GPU cannot be used: {error}")
        return ""


def told(part: str, statuses: Sequence[int], seconds: float, *, over: bool) -> str:
    """Return how a part ended; those that ended well have passed, or were recorded before."""
    if not statuses:
        return f"{part}: recorded of these sources"
    if set(statuses) == {NOT_BEGUN}:
        return f"{part}: not begun, for lack of time"
    failed = [status for status in statuses if status not in {0, NOT_BEGUN, UNFINISHED}]
    why = f"status {failed[0]}: its output says why" if failed else "for lack of time"
    if failed and not over:
        return f"{part}: FAILED with {why} ({seconds:.0f} s)"
    how = f"unfinished, {why}" if any(statuses) else "passed"
    return f"{part}: {how} ({seconds:.0f} s)"


def main(arguments: list[str] | None = None) -> int:
    """Run parts, print how each ended, and return 1 if one failed or was not finished."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--missing", action="store_true", help="only what is not recorded")
    parser.add_argument("--plan", action="store_true", help="only say what would run")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, metavar="S", help="begin nothing later"
    )
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.parts) - set(PARTS)):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    asked = [part for part in PARTS if part in (given.parts or PARTS)]
    runner, gpus = Runner(time.perf_counter() + given.seconds), Gpus()
    here = gpu_here() if model() or not given.plan else ""  # a plan needs no CuPy
    recorded = sorted(path.stem for path in RESULTS.glob("*.json"))
    for gpu in [here] if here or not given.plan else recorded:
        print(*Parts(runner, gpus, gpu, given.missing).plan(asked), sep="\n", flush=True)
    if given.plan:
        return 0
    sources = content_hashes()
    parts = Parts(runner, gpus, here, given.missing)
    before = {number: signal.signal(number, runner.stop) for number in _SIGNALS}
    try:
        lines = run_parts(parts, asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if sources != {name: tree_hash(ROOT / name) for name in sources}:
        lines.append("sources: FAILED: they changed during the run")
    print("\n== summary", *lines, sep="\n")
    for part in (part for part in asked if part != "doctor"):
        if names := left(part, parts.evidence):
            more = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
            print(f"not recorded of these sources: {part}: {', '.join(names[:_NAMED])}{more}")
    return int(not all(line.partition(": ")[2].startswith(_WELL) for line in lines))


def run_parts(parts: Parts, asked: Sequence[str]) -> list[str]:
    """Run parts and return how each ended."""
    statuses: dict[str, list[int]] = {part: [] for part in asked}
    spent: dict[str, float] = dict.fromkeys(asked, 0.0)
    cut_short: set[str] = set()

    def attempt(part: str, run: Callable[[], int]) -> None:
        began = time.perf_counter()
        try:
            status = run()
        except (OSError, ValueError, RuntimeError):  # of a process, a file, CUDA; others run on
            traceback.print_exc()
            status = 1
        statuses[part].append(status)
        spent[part] = max(spent[part], time.perf_counter() - began)
        if parts.runner.is_over:
            cut_short.add(part)

    for part in asked:
        if part in ON_ALL and parts.todo(part):
            attempt(part, partial(parts.on_all, part))
    shares = parts.shares([part for part in asked if part in ON_ONE])

    def on_gpu(number: int) -> None:
        for part, names in shares[number].items():
            attempt(part, partial(parts.on_one, part, names, parts.gpus.each[number]))

    with ThreadPoolExecutor(parts.gpus.count) as pool:
        list(pool.map(on_gpu, range(parts.gpus.count)))
    return [told(part, statuses[part], spent[part], over=part in cut_short) for part in asked]


if __name__ == "__main__":
    sys.exit(main())
