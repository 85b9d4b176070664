"""Which rows of the benchmark miss a bar, by how much, and what limits them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

#: Section, what its cases contain (a regular expression; the first that fits counts), and what
#: limits those that miss a bar.
REASONS = (
    (
        "2:4",
        r"x(64|128)\b",
        "Not found: every value is read once, at two thirds of a copy's speed.",
    ),
    (
        "2:4",
        "",
        "Power: at these rates the chip lowers its clock, and cuSPARSELt runs at the same limit. "
        "The bars ask for 8 to 12% less time than its best algorithm's.",
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
        "",
        "At E = 64 products and exponentials take equally long, so every other instruction adds "
        "to the time ([attention](attention.md)).",
    ),
    (
        "gradients",
        "512x512",
        "Two launches: the host takes as long for them as for two calls of a `RawKernel`.",
    ),
    (
        "dtypes",
        "int8",
        "Row-major `dense` is transposed first, or in the kernel ([how](hopper.md)).",
    ),
    (
        "layouts",
        "8189",
        "Rows that begin at odd addresses: no tensor map describes them, so `dense` is copied.",
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
        "",
        "The host's clock and driver, which differ between machines: cuBLAS's row says how much.",
    ),
    ("", "", "Within a few percent of its bar, on either side from run to run."),
)


#: The chip that the bars in milliseconds and TFLOP/s are meant for.
_CHIP = "H200"


def shortfalls(rows: Iterable[Mapping[str, Any]], gpu: str) -> list[dict[str, Any]]:
    """Return a line for each reason: how many rows it makes short, and their time over the bar.

    On other chips than that of the bars there are none: a slower one has the best of reasons.
    """
    if _CHIP not in gpu:
        return []
    found: dict[int, list[float]] = {}
    sections: dict[int, dict[str, None]] = {}
    for row in rows:
        over = [row["ms"] / bar["limit ms"] for bar in row["bars"] if not bar["met"]]
        if over:
            number = _reason(row["section"], row["case"])
            found.setdefault(number, []).append(max(over))
            sections.setdefault(number, {})[row["section"]] = None
    return [
        {
            "section": ", ".join(sections[number]),
            "rows short": len(over),
            "time / bar": " to ".join(f"{x:.2f}" for x in sorted({min(over), max(over)})),
            "what limits them": REASONS[number][2],
        }
        for number, over in sorted(found.items())
    ]


def _reason(section: str, case: str) -> int:
    """Return the number of the first reason that fits a row; the last one fits all."""
    return next(
        number
        for number, (of, pattern, _) in enumerate(REASONS)
        if of in {section, ""} and re.search(pattern, case)
    )
