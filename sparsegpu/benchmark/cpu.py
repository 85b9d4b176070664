"""The benchmark without a GPU: products on the CPU beside SciPy and the dense product."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import matmul
from statistics import median
from typing import Any

import numpy as np

import sparsegpu as sg

from ..testing import accuracy_bound, assert_close
from ..tuning.timing import settle
from .report import WRONG

SCIPY, DENSE = "SciPy BSR", "NumPy dense"
_ROUNDS, _SECONDS = 5, 0.5  # at least so many rounds of a case, and so long


@dataclass(frozen=True)
class CpuCase:
    """A product: block size, stored share of the blocks, (M, K, N) and dtype of the operands."""

    block: int
    density: float
    size: tuple[int, int, int]
    dtype: str = "float32"

    @property
    def name(self) -> str:
        """What the table calls it.

        Examples
        --------
        >>> CpuCase(4, 0.01, (4096, 4096, 1), "float64").name
        'float64 4x4 d=0.01 4096x4096x1'
        """
        size = "x".join(map(str, self.size))
        return f"{self.dtype} {self.block}x{self.block} d={self.density} {size}"


#: A solver's products, then those of pruned layers.
CASES = (
    CpuCase(3, 0.005, (6144, 6144, 1), "float64"),
    CpuCase(4, 0.01, (4096, 4096, 8), "float64"),
    CpuCase(16, 0.1, (2048, 2048, 512)),
    CpuCase(32, 0.1, (2048, 2048, 512)),
    CpuCase(32, 0.5, (2048, 2048, 512)),
    CpuCase(64, 0.1, (2048, 2048, 512)),
)
QUICK = (CASES[0], CASES[3])


def cpu_race(
    cases: Sequence[CpuCase] = CASES,
    *,
    limit_s: float = float("inf"),
    progress: Callable[[int, int, dict[str, Any]], None] = lambda done, total, row: None,
) -> dict[str, Any]:
    """Measure cases on the CPU, each checked before it is timed.

    Parameters
    ----------
    cases : sequence of CpuCase
    limit_s : float
        No case is started after so many seconds.
    progress : callable
        Called after each case with the number of cases done, their total and the row.

    Returns
    -------
    dict
        "seconds", "cases left out" and "rows": each with "case", "ms", "error" (the largest, over
        what the bound allows, or what was wrong), "same_bits", "peers" (ms by name) and "verdict"
        ("wrong", else "").
    """
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for case in cases:
        if time.perf_counter() - started > limit_s:
            break
        rows.append(measured(case))
        progress(len(rows), len(cases), rows[-1])
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "cases left out": len(cases) - len(rows),
        "rows": rows,
    }


def measured(case: CpuCase) -> dict[str, Any]:
    """Return the row of a case."""
    rng = np.random.default_rng(0)
    m, k, n = case.size
    blocksize = (case.block, case.block)
    A = sg.random_bsr((m, k), blocksize, case.density, dtype=case.dtype, rng=rng)
    x = rng.standard_normal((k, n)).astype(case.dtype)
    dense = A.toarray()
    error, same = _checked(A, dense, x)
    contestants: dict[str, Callable[[], Any]] = {"ours": partial(matmul, A, x)}
    if importlib.util.find_spec("scipy"):
        contestants[SCIPY] = partial(matmul, A.to_scipy(), x)
    contestants[DENSE] = partial(matmul, dense, x)
    times = interleaved_ms(contestants)
    ms = times.pop("ours")
    wrong = isinstance(error, str) or not same
    return {
        "case": case.name,
        "ms": ms,
        "error": error,
        "same_bits": same,
        "peers": times,
        "verdict": WRONG if wrong else "",
    }


def _checked(A: Any, dense: np.ndarray, x: np.ndarray) -> tuple[float | str, bool]:
    """Return the largest error over what is allowed, or what is wrong, and if two runs agree."""
    out = A @ x
    same = out.tobytes() == (A @ x).tobytes()
    longest = int(np.diff(A.indptr).max(initial=0)) * A.blocksize[1]
    exact, bound = accuracy_bound(dense, x, terms=longest)
    try:
        assert_close(out, exact, bound)
    except AssertionError as error:
        return str(error), same
    rounding = float(np.finfo(out.dtype).eps) / 2
    allowed = bound + rounding * (np.abs(exact) + bound)
    filled = allowed > 0
    share = np.abs(out[filled] - exact[filled]) / allowed[filled]
    return float(share.max(initial=0)), same


def interleaved_ms(contestants: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median ms of each contestant, alternately measured: a load disturbs all.

    What the contestant before has left in the caches, and its threads, disturb none (`settle`).
    """
    for call in contestants.values():
        call()  # makes what is kept for the next calls
    times: dict[str, list[float]] = {name: [] for name in contestants}
    began = time.perf_counter()
    while len(times["ours"]) < _ROUNDS or time.perf_counter() - began < _SECONDS:
        for name, call in contestants.items():
            settle(call)
            start = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: median(taken) for name, taken in times.items()}


def table_rows(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield the cells of each row, by column."""
    for row in rows:
        cells = {"case": row["case"], "ours, ms": f"{row['ms']:.4g}"}
        for name, ms in row["peers"].items():
            cells |= {f"{name}, ms": f"{ms:.4g}", f"over {name}": f"{ms / row['ms']:.2f}"}
        error = row["error"] if isinstance(row["error"], str) else f"{row['error']:.2f}"
        yield cells | {"error / bound": error, "same bits": "yes" if row["same_bits"] else "NO"}
