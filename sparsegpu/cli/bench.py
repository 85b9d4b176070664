"""``bench``: our products beside cuBLAS or SciPy and any installed peer, correctness first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from io import BytesIO
from math import inf
from typing import Any

import numpy as np

import sparsegpu as sg

from ..benchmark import cpu
from ..benchmark.cases import QUICK, SECTIONS, about
from ..benchmark.measure import Row
from ..benchmark.peer import DENSE, PEERS
from ..benchmark.plot import roofline
from ..benchmark.race import TUNING_S, race
from ..benchmark.report import WRONG, summary, table_rows
from .arguments import add_json, new_picture, number, report, write_file
from .demo import choose_library
from .table import print_table

_SECONDS = number(float, "a number of seconds that is not negative", lambda s: s >= 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` takes to a parser."""
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"few cases; on a GPU sections {', '.join(QUICK)}, beside cuBLAS only",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "gpu"),
        default="auto",
        help="auto: the GPU if there is one, else NumPy arrays on the CPU, beside SciPy",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=SECTIONS,
        metavar="SECTION",
        default=[],
        help=f"a section (GPU), may be repeated: {', '.join(SECTIONS)}",
    )
    parser.add_argument(
        "--tuning",
        type=_SECONDS,
        default=TUNING_S,
        metavar="SECONDS",
        help="longest search for a peer's parameters, a case (GPU; default: %(default)g)",
    )
    parser.add_argument(
        "--limit", type=_SECONDS, default=inf, metavar="SECONDS", help="begin no case after so many"
    )
    add_json(parser)
    parser.add_argument(
        "--plot",
        metavar="FILE.png",
        type=new_picture,
        help="draw the roofline (GPU; needs matplotlib)",
    )


def run(
    *,
    only: Sequence[str] = (),
    quick: bool = False,
    device: str = "auto",
    tuning: float = TUNING_S,
    limit: float = inf,
    json: str | None = None,
    plot: str | None = None,
    peers: Collection[str] = PEERS,
    finished: Callable[[str, dict[str, Any]], Any] = lambda section, content: None,
) -> int:
    """Run the benchmark, print its tables and return the exit status.

    Parameters
    ----------
    only, quick, device, tuning, limit, json, plot
        As on the command line (`add_arguments`).
    peers, finished
        As `benchmark.race.race` takes them; ``quick`` has one peer at most.

    Returns
    -------
    int
        1 when a result is outside the accuracy bound or two runs differ; a bar that is not met
        is no error. 2 for options that do not go with the device.
    """
    xp, where = choose_library(device)
    if xp is np:
        if only or plot:
            option = "--only" if only else "--plot"
            print(f"sparsegpu bench: {option} needs a GPU; this is {where}", file=sys.stderr)
            return 2
        return _run_on_cpu(where, quick, limit, json)
    with report(json) as told:
        print(f"sparsegpu {sg.__version__} on {where}", flush=True)
        sections = only or (QUICK if quick else SECTIONS)
        content = race(
            sections,
            peers={DENSE}.intersection(peers) if quick else peers,
            tuning_s=tuning,
            limit_s=limit,
            progress=_said,
            finished=finished,
        )
        print_race(content)
        told |= {"device": where, **content}
    if plot is not None:
        picture = BytesIO()
        roofline(content, where, picture)
        write_file(plot, picture.getvalue())
    return int(any(row["verdict"] == WRONG for row in content["rows"]))


def _run_on_cpu(where: str, quick: bool, limit: float, json: str | None) -> int:
    with report(json) as told:
        print(f"sparsegpu {sg.__version__} on {where}", flush=True)
        cases = cpu.QUICK if quick else cpu.CASES
        content = cpu.cpu_race(cases, limit_s=limit, progress=_said)
        print_table(list(cpu.table_rows(content["rows"])))
        if content["cases left out"]:
            print(f"{content['cases left out']} cases left out by the limit")
        told |= {"device": where, **content}
    return int(any(row["verdict"] == WRONG for row in content["rows"]))


def print_race(content: dict[str, Any]) -> None:
    """Print the tables of a race, a section each."""
    for section in SECTIONS:
        rows = [row for row in content["rows"] if row["section"] == section]
        if rows:
            print_table(table_rows(rows), f"{section}: {about(section)}")
    print(f"copy bandwidth {content['copy GB/s']:.0f} GB/s; {content['seconds']:.0f} s")
    if content["cases left out"]:
        print(f"{content['cases left out']} cases left out by the limit")
    for case, why in content["refused"].items():
        print(f"not measured: {case}: {why}")
    print(summary(content["rows"]))


def _said(done: int, total: int, row: Row | dict[str, Any]) -> None:
    """Say on stderr what was measured; on a terminal in one line that is written over."""
    start, end = ("\r\033[K", "") if sys.stderr.isatty() else ("", "\n")
    told = row if isinstance(row, dict) else row.as_dict()
    peers = ", ".join(
        f"{name} {ms:.4g}" if isinstance(ms, float) else f"{name}: {ms}"
        for name, ms in told["peers"].items()
    )
    line = f"{start}{done}/{total} {told['case']}: {told['ms']:.4g} ms ({peers})"
    print(line, end=end if done < total else "\n", file=sys.stderr, flush=True)
