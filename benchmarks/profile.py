"""What limits the Hopper product, by hardware counters: ``python -m benchmarks.profile``.

Runs a case of each block size under Nsight Compute (``ncu``) and records the utilisation of tensor
cores, L2 and memory by the product's kernel (section "profile" of this GPU's file in
``benchmarks/results``). A profiled kernel runs alone, with cold caches and at higher clocks than in
a long run, so its time is not comparable with the race.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from sparsegpu.benchmark.case import Case
from tools.record import ROOT, record

_KERNEL = "bsr_addmm_sm90"
_METRICS = {
    "us": "gpu__time_duration.sum",
    "tensor cores busy, %": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "L2 to SM, % of peak": "l1tex__m_xbar2l1tex_throughput.avg.pct_of_peak_sustained_elapsed",
    "L2 to SM, TB/s": "l1tex__m_xbar2l1tex_read_bytes.sum.per_second",
    "L2, % of peak": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM, % of peak": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
}


def profiled() -> list[Case]:
    """Return the cases: every block size at density 0.1."""
    size = (8192, 8192, 8192)
    return [Case("main", (block, block), 0.1, size) for block in (16, 32, 64, 128, 256)]


def run_cases() -> None:
    """Call every case's product twice; the second launch is recorded."""
    import cupy

    from sparsegpu.benchmark.workload import make_product

    for case in profiled():
        product = make_product(case, cupy)
        product.call()
        product.call()
        cupy.cuda.Device().synchronize()


def figures_of(log: Iterable[str]) -> list[dict[str, float]]:
    """Return the figures of each launch from ncu's CSV, in order.

    Examples
    --------
    >>> log = ['"ID","Metric Name","Metric Unit","Metric Value"',
    ...        '"0","gpu__time_duration.sum","us","12.5"',
    ...        '"0","l1tex__m_xbar2l1tex_read_bytes.sum.per_second","Tbyte/s","5.25"']
    >>> figures_of(log)
    [{'us': 12.5, 'L2 to SM, TB/s': 5.25}]
    """
    names = {metric: name for name, metric in _METRICS.items()}
    scales = {"ms": 1e3, "ns": 1e-3, "byte/s": 1e-12, "Gbyte/s": 1e-3}
    launches: dict[str, dict[str, float]] = {}
    lines = [line for line in log if line.startswith('"')]
    for row in csv.DictReader(lines):
        if (name := names.get(row["Metric Name"])) is not None:
            value = float(row["Metric Value"].replace(",", ""))
            scaled = value * scales.get(row["Metric Unit"], 1.0)
            launches.setdefault(row["ID"], {})[name] = round(scaled, 3)
    return list(launches.values())


def main(arguments: list[str]) -> int:
    """Profile and record, or with ``--run`` be the profiled program."""
    if arguments == ["--run"]:
        run_cases()
        return 0
    started = time.perf_counter()
    done = subprocess.run(
        [
            *("ncu", "--csv", "--clock-control", "none", "--kernel-name", _KERNEL),
            *("--metrics", ",".join(_METRICS.values())),
            *(sys.executable, "-m", "benchmarks.profile", "--run"),
        ],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    found = figures_of(done.stdout.splitlines())
    cases = profiled()
    if (
        done.returncode
        or len(found) != 2 * len(cases)
        or any(len(f) < len(_METRICS) for f in found)
    ):
        print(
            f"profile: expected {2 * len(cases)} launches of {_KERNEL} with {len(_METRICS)} figures"
        )
        print(f"each, got {found}; ncu's end:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return 1
    rows: list[dict[str, Any]] = [
        {"case": case.name, **figures} for case, figures in zip(cases, found[1::2], strict=True)
    ]
    for row in rows:
        print(row)
    content = {"kernel": _KERNEL, "rows": rows, "seconds": round(time.perf_counter() - started, 1)}
    print("recorded in", record("profile", content))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("--run", action="store_true", help="be the profiled program")
    sys.exit(main(["--run"] if parser.parse_args().run else []))
