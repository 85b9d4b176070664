"""Verdicts on rows by their bars, and the tables that are printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .bars import Bar
from .case import Case

MET, SHORT, WRONG, NO_BAR = "met", "short", "wrong", ""

Rows = list[dict[str, Any]]


def judge(rows: Rows, cases: Iterable[Case], copy_gbs: float) -> Rows:
    """Return the rows with rate, best peer, ratio, bars, goals and verdict.

    A bar or goal that refers to a case or peer that was not measured is left out. A row with a
    wrong result, or with two runs of different bits, is "wrong" whatever its time.
    """
    by_name = {row["case"]: row for row in rows}
    named = {case.name: case for case in cases}
    return [_judged(row, named[row["case"]], by_name, copy_gbs) for row in rows]


def _judged(
    row: Mapping[str, Any], case: Case, by_name: Mapping[str, Any], copy_gbs: float
) -> dict[str, Any]:
    def compared(bars: Iterable[Bar]) -> Rows:
        limits = [(bar, bar.limit_ms(row, by_name, copy_gbs)) for bar in bars]
        return [
            {"bar": bar.text(), "limit ms": limit, "met": row["ms"] <= limit}
            for bar, limit in limits
            if limit is not None
        ]

    judged = compared(case.bars)
    verdict = NO_BAR
    if isinstance(row["error"], str) or not row["same_bits"]:
        verdict = WRONG
    elif judged:
        verdict = MET if all(bar["met"] for bar in judged) else SHORT
    best = best_peer(row)
    return {
        **row,
        "rate": rate(row, row["ms"]),
        "unit": unit(row),
        "best peer": best,
        "ratio": row["peers"][best] / row["ms"] if best else None,
        "bars": judged,
        "goals": compared(case.goals),
        "verdict": verdict,
    }


def best_peer(row: Mapping[str, Any]) -> str:
    """Return the name of the fastest peer, "" if there is none."""
    timed = {name: ms for name, ms in row["peers"].items() if isinstance(ms, float)}
    return min(timed, key=lambda name: timed[name], default="")


def unit(row: Mapping[str, Any]) -> str:
    """Return the unit of a row's rate."""
    if row["measure"] != "device":
        return "us"
    return "GB/s" if row["memory_bound"] else "TF"


def rate(row: Mapping[str, Any], ms: float) -> float:
    """Return the rate at which a time does the row's work; a host time in microseconds."""
    return {"us": ms * 1e3, "GB/s": row["bytes"] / ms / 1e6, "TF": row["flops"] / ms / 1e9}[
        unit(row)
    ]


def table_rows(rows: Rows) -> list[dict[str, str]]:
    """Return the cells of each judged row, by column."""
    return [_table_row(row) for row in rows]


def _table_row(row: Mapping[str, Any]) -> dict[str, str]:
    peers = [
        f"{name} {_digits(ms)}" if isinstance(ms, float) else f"{name}: {ms}"
        for name, ms in row["peers"].items()
    ]
    bars = [_digits(rate(row, bar["limit ms"])) for bar in row["bars"]]
    # Rows recorded before there were goals have none.
    goals = [_digits(rate(row, goal["limit ms"])) for goal in row.get("goals", ())]
    error = row["error"] if isinstance(row["error"], str) else f"{row['error']:.2f}"
    return {
        "case": row["case"],
        "ours, ms": _digits(row["ms"]),
        "ours": f"{_digits(row['rate'])} {row['unit']}",
        "bar": ", ".join([*bars, *(f"goal {goal}" for goal in goals)]),
        "verdict": row["verdict"],
        "best peer": row["best peer"],
        "x faster": "" if row["ratio"] is None else f"{row['ratio']:.2f}",
        "error / bound": error,
        "same bits": "yes" if row["same_bits"] else "NO",
        "peers, ms": "; ".join(peers),
    }


def _digits(value: float) -> str:
    """Return four digits of a number, and of a large one all before the point."""
    return f"{value:.4g}" if value < 9999.5 else f"{value:.0f}"


def summary(rows: Rows) -> str:
    """Return in a line how many rows meet all their bars, and how many bars are met.

    Rows without a bar, and those with a wrong result, count in neither.
    """
    count = {v: sum(row["verdict"] == v for row in rows) for v in (MET, SHORT, WRONG)}
    bars = [bar["met"] for row in rows if row["verdict"] != WRONG for bar in row["bars"]]
    parts = [
        f"{count[MET]} of {count[MET] + count[SHORT]} rows meet all their bars",
        f"{sum(bars)} of {len(bars)} bars are met",
    ]
    if count[WRONG]:
        parts.append(f"{count[WRONG]} rows WRONG")
    return ", ".join(parts)
