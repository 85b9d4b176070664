"""The solvers beside SciPy's, on a GPU beside cupyx's: times, iterations, convergence.

``python -m benchmarks.solvers`` takes some seconds on a GPU, besides compilation. ``--device cpu``
runs it on NumPy, ``--small`` with small problems; ``--json FILE`` keeps rows and residual norms.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg
from sparsegpu.benchmark.solvers import cube
from sparsegpu.cli.demo import choose_library, elasticity_problem, scipy_linalg, synchronize
from sparsegpu.cli.table import print_table

#: Of an H200, in bytes a second: what an iteration's time is compared with.
_BANDWIDTH = 4.0e12
_VECTORS = 10  # that an iteration of conjugate gradients reads and writes


def main(arguments: list[str] | None = None) -> int:
    """Solve, print the tables and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solvers", description=__doc__)
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    xp, where = choose_library(chosen.device)
    print(f"sparsegpu {sg.__version__} on {where}\n")
    rows = elasticity(xp, 24 if chosen.small else 160) + grid(xp, 9 if chosen.small else 70)
    shown = [{k: v for k, v in row.items() if k != "residuals"} for row in rows]
    for section in dict.fromkeys(row["problem"] for row in shown):
        print_table([_cells(row) for row in shown if row["problem"] == section], section)
    if chosen.json:
        chosen.json.write_text(json.dumps({"device": where, "rows": rows}) + "\n")
    return 0


def elasticity(xp: ModuleType, across: int) -> list[dict[str, Any]]:
    """Solve the demo's problem by `cg`, with preconditioners and without, and for 8 modes."""
    a, load, _ = elasticity_problem(across)
    peer = _peer(xp, a)
    if xp is not np:
        a, load = a.to_device(), xp.asarray(load)
    name = f"elasticity, {a.shape[0]} unknowns, 2x2, float64"
    keywords = {"rtol": 1e-8, "maxiter": 20000}
    made = {"sparsegpu": None, "block_jacobi": sg.linalg.block_jacobi(a)}
    started = time.perf_counter()
    try:
        made["amg"] = sg.linalg.amg(a)
    except ImportError as error:
        print(error)
    setup = time.perf_counter() - started
    rows = [_solved(xp, name, s, sg.linalg.cg, a, load, M=M, **keywords) for s, M in made.items()]
    rows[-1]["set-up, s"] = round(setup, 3)
    every = partial(sg.linalg.cg, check_every=1)
    rows.append(_solved(xp, name, "sparsegpu, a look every time", every, a, load, **keywords))
    launched = a.__matmul__  # a callable is not captured
    rows.append(_solved(xp, name, "sparsegpu, launched", sg.linalg.cg, launched, load, **keywords))
    cg = scipy_linalg(xp).cg
    rows.append(
        _solved(xp, name, "SciPy" if xp is np else "cupyx, CSR", cg, peer, load, **keywords)
    )
    start = xp.asarray(np.random.default_rng(0).standard_normal((a.shape[0], 8)))
    for who, method, matrix in (
        ("sparsegpu", sg.linalg.lobpcg, a),
        ("SciPy" if xp is np else "cupyx, CSR", scipy_linalg(xp).lobpcg, peer),
    ):
        call = partial(method, matrix, start, largest=True, tol=1e-3, maxiter=40)
        spent, answer = _timed(xp, call)
        row = {"problem": "lobpcg, 8 modes", "solver": who, "time, s": round(spent, 4)}
        rows.append(row | {"largest": float(answer[0].max())})
    return rows


def grid(xp: ModuleType, side: int) -> list[dict[str, Any]]:
    """Time an iteration on a cube of nodes that touch 27 nodes each, 3 unknowns a node."""
    a, load = cube(3 * side**3)
    n = a.shape[0]
    if xp is not np:
        a, load = a.to_device(), xp.asarray(load)
    name = f"27 blocks of 3x3 a row, {n} unknowns, float64"
    found = []
    for r, right in ((1, load), (4, xp.stack([load] * 4, axis=1))):
        many = {"rtol": 0.0, "maxiter": 200, "check_every": 100}
        row = _solved(xp, name, f"sparsegpu, {r} columns", sg.linalg.cg, a, right, **many)
        moved = a.data.nbytes + a.indices.nbytes + _VECTORS * right.nbytes
        row["over bandwidth"] = round(row["time, s"] / 200 / (moved / _BANDWIDTH), 2)
        found.append(row)
    return found


def _solved(
    xp: ModuleType, problem: str, solver: str, method: Callable, a: Any, b: Any, **keywords: Any
) -> dict[str, Any]:
    """Return the row of a solver: its best time of three, iterations and residual norms."""
    norms: list[float] = []
    ours = "sparsegpu" in getattr(getattr(method, "func", method), "__module__", "")
    if ours:
        method(a, b, residuals=norms, **keywords)
    else:
        method(a, b, callback=lambda x: norms.append(float(xp.linalg.norm(b - a @ x))), **keywords)
    spent, (_, info) = _timed(xp, partial(method, a, b, **keywords))
    iterations = len(norms) - ours
    return {
        "problem": problem,
        "solver": solver,
        "iterations": iterations,
        "time, s": round(spent, 4),
        "iteration, us": round(spent / max(iterations, 1) * 1e6, 1),
        "converged": not np.any(info),
        "residuals": np.asarray(norms).tolist(),
    }


def _timed(xp: ModuleType, call: Callable[[], Any]) -> tuple[float, Any]:
    answer, times = call(), []
    for _ in range(3):
        synchronize(xp)
        start = time.perf_counter()
        answer = call()
        synchronize(xp)
        times.append(time.perf_counter() - start)
    return min(times), answer


def _peer(xp: ModuleType, a: Any) -> Any:
    if xp is np:
        return a.to_scipy()
    import cupyx.scipy.sparse

    return cupyx.scipy.sparse.csr_matrix(a.to_scipy().tocsr())


def _cells(row: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items() if name != "problem"}


if __name__ == "__main__":
    raise SystemExit(main())
