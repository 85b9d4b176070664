"""Which rows of the benchmark miss a bar, by how much, and what limits them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

#: The chip that the bars in milliseconds and TFLOP/s are meant for. Slower ones miss them anyway.
_CHIP = "H200"
#: Section, what its cases contain (a regular expression; the first that fits counts), and what
#: limits those that miss a bar. Whoever removes a limit, or finds one, changes it here.
_REASONS = (
    (
        "2:4",
        r"x(64|128)\b",
        "The cause is not known: every value is read once, at two thirds of a copy's speed.",
    ),
    (
        "2:4",
        "",
        "Power: at these rates the chip lowers its clock, and cuSPARSELt runs at the same limit. "
        "Most of these bars ask for 7 to 11% less time than its best algorithm's.",
    ),
    (
        "8.0 path",
        "",
        "The path for 8.0 multiplies by `mma.sync`; Triton's product uses `wgmma`, which only "
        "capability 9.0 has. By default a 9.0 chip takes our `wgmma` path.",
    ),
    (
        "attention",
        "dropout",
        "The random numbers: ten rounds of Philox for every four scores.",
    ),
    (
        "attention",
        "pages",
        "Memory: keys and values are read as fast as a copy reads and writes.",
    ),
    (
        "attention",
        "host time",
        "The host's clock: a third is the launch, the rest looks up what an equal call did.",
    ),
    (
        "attention",
        "",
        "At E = 64 the instructions of the softmax bind, and rows are short: a tile's beginning "
        "and end take as long as one and a half stages of keys ([attention](attention.md)).",
    ),
    (
        "gradients",
        "host time",
        "Two launches, a third of the time; three results to allocate; the host's clock.",
    ),
    (
        "gradients",
        "causal",
        "Power, probably: what ran before changes the same call's time by more than it is short, "
        "and equal shares of the tiles, which the forward call gains from, hardly change it.",
    ),
    (
        "dtypes",
        "int8",
        "Row-major `dense` is transposed first, or in the kernel ([how](hopper.md)).",
    ),
    (
        "kernels",
        "host time",
        "The host's clock and driver, which differ between machines: CuPy's row says how much.",
    ),
    (
        "layouts",
        "8189",
        "Rows whose distance is no multiple of 16 bytes: no tensor map describes them, so `dense` "
        "is copied first.",
    ),
    (
        "sampled",
        "",
        "L2: each tile reads its rows and columns again ([the Hopper kernels](hopper.md)).",
    ),
    (
        "scatter",
        "index lists",
        "Mostly host time: the lists are allocated, and the number of rows that hold blocks is "
        "waited for. It differs between hosts.",
    ),
    ("skinny", "", "Latency: a tile has too few blocks to hide the first one's way from memory."),
    ("softmax", "", "Latency of a row: maximum, sum and result follow one another."),
    (
        "vectors",
        "",
        "Requests to L2: a block needs a few numbers from anywhere in the vectors "
        "([vectors](vectors.md)).",
    ),
    (
        "host",
        "^(tile|apply) ",
        "Four or five results, each of which is allocated: 3 us of the host's time.",
    ),
    (
        "host",
        "",
        "The host's clock and driver, which differ between machines: cuBLAS's row says how much.",
    ),
)
_NEAR = 1.05
_NEAR_THE_BAR = "Within 5% of the bar: no cause was looked for."
_UNKNOWN = "The cause is not known."


def shortfalls(rows: Iterable[Mapping[str, Any]], gpu: str) -> list[dict[str, Any]]:
    """Return a line for each section and reason: its number of short rows, their time over the bar.

    There are none for a GPU that the bars are not meant for.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows if _CHIP in gpu else ():
        over = [row["ms"] / bar["limit ms"] for bar in row["bars"] if not bar["met"]]
        if over:
            reason = _reason(row["section"], row["case"], max(over))
            found.setdefault((row["section"], reason), []).append(max(over))
    return [
        {
            "section": section,
            "rows short": len(over),
            "time / bar": " to ".join(f"{x:.2f}" for x in sorted({min(over), max(over)})),
            "what limits them": reason,
        }
        for (section, reason), over in found.items()
    ]


def _reason(section: str, case: str, over: float) -> str:
    """Return what limits a row."""
    for of, pattern, reason in _REASONS:
        if of == section and re.search(pattern, case):
            return reason
    return _NEAR_THE_BAR if over <= _NEAR else _UNKNOWN
