"""Rows of the race with invented times."""

from __future__ import annotations

from sparsegpu.benchmark import (
    measure,
    report,
)
from sparsegpu.benchmark.case import Case

COPY_GBS = 4000.0


def row(case: Case, ms: float, **found) -> dict:
    """Return a measured row of a case, as if from a GPU."""
    m, k, n = case.shape
    stored = round(case.density * m * k)
    content = measure.Row(
        case=case.name,
        section=case.section,
        dtype=case.dtype,
        block=list(case.block),
        shape=[m, k, n],
        density=case.density,
        pattern=case.pattern,
        layout=case.layout,
        measure=case.measure,
        memory_bound=case.flush,
        flops=2 * stored * n,
        bytes=4 * stored,
        stored_bytes=2 * stored,
        ms=ms,
        error=0.5,
        same_bits=True,
    )
    return content.as_dict() | found


def judged(chosen, rows):
    return report.judge(rows, chosen, COPY_GBS)
