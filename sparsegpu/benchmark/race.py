"""The benchmark: the cases of some sections are measured, then judged section by section."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from itertools import groupby
from math import inf
from typing import Any

from ..tuning.timing import copy_gbs
from .cases import SECTIONS, cases
from .measure import Row, measure_case
from .peer import PEERS
from .report import judge

#: Longest search for a peer's parameters, per case.
TUNING_S = 3.0


def race(
    sections: Iterable[str],
    *,
    peers: Collection[str] = PEERS,
    tuning_s: float = TUNING_S,
    limit_s: float = inf,
    progress: Callable[[int, int, Row], None] = lambda done, total, row: None,
    finished: Callable[[str, dict[str, Any]], Any] = lambda section, content: None,
) -> dict[str, Any]:
    """Measure all cases of some sections on the current device.

    Parameters
    ----------
    sections : iterable of str
        Of `cases.SECTIONS`.
    peers : collection of str
        As in `measure.measure_case`.
    tuning_s : float
    limit_s : float
        No case is started after so many seconds.
    progress : callable
        Called after each case with the number of cases done, their total and the row.
    finished : callable
        Called with each of the sections after its last case, and with "copy GB/s", "seconds",
        "refused" and "rows" of that section alone. Not called for a section that the limit cut
        short, nor for one of which only some cases are measured because others need them.

    Returns
    -------
    dict
        "copy GB/s", "seconds", "cases left out" by the limit, "refused": why, by case, those that
        name a path or tile were not measured, and "rows" as `report.judge` gives them.
    """
    import cupy

    from ..engines.cuda.paths._fields import ConfigError
    from ..engines.cuda.runtime.compile import CompileError
    from ..engines.cuda.runtime.launch import LaunchError

    started = time.perf_counter()
    copy_rate = copy_gbs()
    asked = set(sections)
    chosen = cases(asked)
    by_name = {case.name: case for case in cases(SECTIONS)}
    measured: dict[str, Row] = {}
    parts: list[dict[str, Any]] = []
    for section, group in groupby(chosen, key=lambda case: case.section):
        began, of_section = time.perf_counter(), list(group)
        refused: dict[str, str] = {}
        for case in of_section:
            if time.perf_counter() - started > limit_s:
                break
            others = [by_name[name] for name in case.rates_of]
            try:
                row = measure_case(case, others=others, peers=peers, tuning_s=tuning_s)
            except (ConfigError, CompileError, LaunchError, ImportError) as error:
                if not case.path and not isinstance(error, ImportError):  # of a preconditioner
                    raise
                refused[case.name] = f"{type(error).__name__}: {error}".splitlines()[0]
                continue
            measured[case.name] = row
            if case.peers_of:
                row.peers, row.notes = measured[case.peers_of].peers, measured[case.peers_of].notes
            progress(len(measured), len(chosen), row)
            cupy.get_default_memory_pool().free_all_blocks()
        rows = [measured[case.name].as_dict() for case in of_section if case.name in measured]
        part = {
            "copy GB/s": copy_rate,
            "seconds": round(time.perf_counter() - began, 1),
            "refused": refused,
            "rows": judge(rows, of_section, copy_rate),
        }
        if section in asked and len(rows) + len(refused) == len(of_section):
            finished(section, part)
        parts.append(part)
    refused = {case: why for part in parts for case, why in part["refused"].items()}
    return {
        "copy GB/s": copy_rate,
        "seconds": round(time.perf_counter() - started, 1),
        "cases left out": len(chosen) - len(measured) - len(refused),
        "refused": refused,
        "rows": [row for part in parts for row in part["rows"]],
    }
