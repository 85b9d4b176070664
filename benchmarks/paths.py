"""What each kernel path gains over the next one: ``python -m benchmarks.paths``.

A product takes the first path of its family that serves it and pays. Here it also takes every later
path that serves it, and the times are compared. The cases of an operation and a dtype are one
section. It is recorded as soon as it is measured, in "paths" of this GPU's file in
``benchmarks/results``, and replaces itself alone: a run that ends early keeps what it has. Exits 1
if ``--limit`` left a section. ``python -m tools.readme`` writes the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from sparsegpu.benchmark import attention, spgemm
from sparsegpu.benchmark.case import PLAIN_24, Case
from sparsegpu.benchmark.measure import make_workload
from sparsegpu.benchmark.sampled import SAMPLED
from sparsegpu.engines.cuda import paths
from sparsegpu.engines.cuda.paths import Family
from sparsegpu.engines.cuda.paths._fields import ConfigError
from sparsegpu.engines.cuda.runtime.launch import recording
from sparsegpu.tuning.timing import interleaved_ms
from tools.record import record

_FORWARD, _BACKWARD = attention.OPERATIONS
_PAIRS = "scatter_mm of pairs"
_FAMILIES: dict[str, Family] = {
    "bsr": paths.BSR,
    "2:4": paths.SEMI_STRUCTURED,
    "2:4 blocks": paths.BSR_SEMI_STRUCTURED,
    _FORWARD: paths.ATTENTION,
    _BACKWARD: paths.ATTENTION_BACKWARD,
    SAMPLED: paths.SAMPLED,
    spgemm.OPERATION: paths.SPGEMM,
    _PAIRS: paths.SCATTER,
}


def cases() -> Iterator[Case]:
    """Work such that each path is the usual one of some, or comes after it."""
    yield from _products()
    yield from _attention()
    yield from _others()


def sections() -> dict[str, list[Case]]:
    """Return the cases of each section."""
    found: dict[str, list[Case]] = {}
    for case in cases():
        section = f"{case.operation} {'tf32' if case.tf32 else case.dtype}"
        found.setdefault(section, []).append(case)
    return found


def _products() -> Iterator[Case]:
    def bsr(block: int, density: float, *size: int, **more: Any) -> Case:
        return Case("paths", (block, block), density, (*size,), **more)

    yield bsr(16, 0.5, 4096, 4096, 4096)
    for block in (16, 32, 64, 128):
        yield bsr(block, 0.1, 4096, 4096, 4096)
    yield bsr(8, 0.1, 4096, 4096, 4096)
    yield bsr(64, 0.1, 4096, 4096, 4095)  # columns that no 16-byte copy fits
    for block in (32, 128):
        yield bsr(block, 0.1, 4096, 4096, 4096, dtype="int8")
        yield bsr(block, 0.1, 4096, 4096, 4096, dtype="float32", tf32=True)
        yield bsr(block, 0.1, 4096, 4096, 4096, dtype="float32")
        yield bsr(block, 0.1, 4096, 4096, 4096, dtype="float64")
    for columns in (16, 64):
        yield bsr(64, 0.1, 4096, 4096, columns, flush=True)
        yield bsr(16, 0.1, 4096, 4096, columns, flush=True)
    yield bsr(64, 0.1, 4096, 4096, 1, flush=True)
    for block, columns in ((24, 5), (40, 4), (12, 8), (5, 40)):  # for a few columns, and for many
        for dtype in ("bfloat16", "float64"):
            yield bsr(block, 0.1, 4080, 4080, columns, dtype=dtype)
    for dtype in ("float32", "float64"):
        yield bsr(4, 2e-4, 419424, 419424, 4, dtype=dtype, pattern="strata", flush=True)

    def dense_24(*size: int, **more: Any) -> Case:
        return Case("paths", PLAIN_24, 0.5, (*size,), operation="2:4", **more)

    yield dense_24(8192, 8192, 64, flush=True)
    yield dense_24(4096, 4096, 4096)
    yield dense_24(4096, 4096, 4096, dtype="int8")
    yield dense_24(4096, 4096, 4096, dtype="float8_e4m3fn")
    yield dense_24(4096, 4096, 4096, dtype="float32", tf32=True)
    for block in (32, 128):
        yield bsr(block, 0.1, 4096, 4096, 4096, operation="2:4 blocks")


def _attention() -> Iterator[Case]:
    def heads(block: int, dtype: str, **more: Any) -> Case:
        size = (2048, 2048, 64)
        return Case("paths", (block, block), 0.1, size, dtype, "diagonal", batch=16, **more)

    for block in (16, 64, 128):
        yield heads(block, "bfloat16", operation=_FORWARD)
        yield heads(block, "bfloat16", operation=_BACKWARD)
    for dtype in ("float32", "float64"):
        yield heads(64, dtype, operation=_FORWARD)
        yield heads(64, dtype, operation=_BACKWARD)
    for operation in (_FORWARD, _BACKWARD):
        yield heads(64, "float32", operation=operation, tf32=True)
    pages = heads(64, "bfloat16", operation=_FORWARD, group=4, flush=True)
    yield replace(pages, block=(1, 64), size=(16, 131072, 128), density=1 / 16, pattern="pages")


def _others() -> Iterator[Case]:
    def square(size: int, block: int, dtype: str, operation: str) -> Case:
        return Case("paths", (block, block), 0.1, (size,) * 3, dtype, operation=operation)

    for block, dtype in ((16, "bfloat16"), (64, "bfloat16"), (128, "bfloat16"), (64, "float32")):
        yield square(4096, block, dtype, SAMPLED)
        yield square(4096, block, dtype, spgemm.OPERATION)
        yield square(4096, block, dtype, _PAIRS)
    for operation in (SAMPLED, _PAIRS):
        yield square(4096, 64, "float64", operation)
    stencil = square(30**3 * 3, 3, "float64", spgemm.OPERATION)
    yield replace(stencil, density=27 / 30**3, pattern="stencil")
    yield square(2048, 32, "float64", spgemm.OPERATION)


def usual_path(family: Family, case: Case) -> int:
    """Return the number in its family of the path that a case takes by itself."""
    launched: set[str] = set()
    workload = make_workload(case)
    with recording(lambda works, whole, setup: launched.update(w.source for w in works)):
        workload.call()
    for i, path in enumerate(family):
        # cuBLAS launches no kernel of ours, but what scatters the blocks for it is one.
        if launched.intersection(path.SOURCES or {"bsr_scatter"}):
            return i
    raise AssertionError(f"{case.name}: no path launched a kernel")


def on_paths(case: Case) -> dict[str, Any]:
    """Return the case's workload on each path that serves it, from the usual one on."""
    family = _FAMILIES[case.operation]
    first = usual_path(family, case)
    found = {family[first].NAME: make_workload(case)}
    for path in family[first + 1 :]:
        workload = make_workload(replace(case, path=path.NAME))
        if serves(workload):
            found[path.NAME] = workload
    return found


def serves(workload: Any) -> bool:
    """Return whether the path of a workload takes it."""
    try:
        workload.call()
    except ConfigError:
        return False
    return True


def rows(cases: Iterable[Case]) -> Iterator[dict[str, Any]]:
    """Return a row for each path of each case and the next path that serves it."""
    for case in cases:
        found = on_paths(case)
        times = interleaved_ms(
            {name: workload.call for name, workload in found.items()}, flush=case.flush
        )
        names = list(found)
        for name, after in pairwise(names):
            row = {
                "path": name,
                "next": after,
                "case": case.name,
                "ms": times[name],
                "next, ms": times[after],
            }
            print(row, flush=True)
            yield row


def main(arguments: list[str] | None = None) -> int:
    """Measure and record some sections, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paths", description=__doc__)
    parser.add_argument("--only", action="append", choices=sections(), metavar="SECTION")
    parser.add_argument(
        "--limit", type=float, default=math.inf, metavar="S", help="begin no section after S s"
    )
    given = parser.parse_args(arguments)
    started = time.perf_counter()
    left = [name for name in sections() if name in (given.only or sections())]
    while left and time.perf_counter() - started < given.limit:
        name, began = left.pop(0), time.perf_counter()
        measured = list(rows(sections()[name]))
        seconds = round(time.perf_counter() - began, 1)
        path = record("paths", {"rows": measured, "seconds": seconds}, part=name)
        print(f"{name}: recorded in {path}", flush=True)
    if left:
        print(f"left by the limit: {', '.join(left)}")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
