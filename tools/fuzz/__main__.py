"""Run many random cases: ``python -m tools.fuzz [--engine cuda] [--cases N] [-j N] [--record]``.

Cases are split over the drawing functions of `CASES` and run in chunks, each with a seed of its
own, by processes of which several may share a GPU. ``--seconds`` ends the run between chunks. The
table counts calls by name and outcome. Failures are printed with the words that run them again;
off a GPU they are minimised. ``--record`` needs a GPU's machine: its record holds the CPU's run,
too, in a section of its own. Exit status 1 with a failure, a process that died or no case at all.
"""

from __future__ import annotations

import argparse
import sys
import time

from ..record import environment, record
from .campaign import CASES, chunks, run, table
from .runner import REFUSED, RIGHT


def main(arguments: list[str] | None = None) -> int:
    """Run, print the table, record; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--engine", choices=("cpu", "reference", "cuda"), action="append")
    parser.add_argument("--cases", type=int, default=10_000, help="in all (10,000)")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, default=0, help="of the first chunks (0)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no chunk later")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="drawing functions, by their names' beginning"
    )
    parser.add_argument(
        "--record", action="store_true", help="write the counts to benchmarks/results"
    )
    given = parser.parse_args(arguments)
    engines = given.engine or ["cpu", "reference"]
    names = [n for n in CASES if not given.only or n.startswith(tuple(given.only))]
    if not names:
        parser.error(f"--only: no such name; there are {', '.join(CASES)}")
    if given.record:
        environment()  # which needs a GPU: say so now
    section = "fuzz" if engines == ["cuda"] else "fuzz_cpu"
    started = time.monotonic()
    todo = chunks(names, engines, given.cases, given.seed)
    counts, failures = run(todo, given.jobs, given.seconds, given.cases)
    seconds = time.monotonic() - started
    counted = table(counts)
    width = max(map(len, counted), default=0)
    for name, how in counted.items():
        print(f"{name:{width}}  {how[RIGHT]:>7,} right  {how[REFUSED]:>7,} refused")
    ran = f"{counts.total():,} cases of {given.cases:,} on {' and '.join(engines)}"
    print(f"{ran} in {seconds:.0f} s: {len(failures)} failures")
    if given.record:
        content = {
            "engines": engines,
            "seed": given.seed,
            "cases": counts.total(),
            "failures": len(failures),
            "seconds": round(seconds),
            "calls": counted,
        }
        print(f"recorded in {record(section, content)}")
    return int(bool(failures) or not counts)


if __name__ == "__main__":
    sys.exit(main())
