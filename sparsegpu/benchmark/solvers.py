"""Solvers: linear systems and eigenvalues beside cupyx's and SciPy's, with their convergence.

``size`` of a case is (unknowns, unknowns, right-hand sides or modes): the problem has as many
unknowns as its mesh allows, and no more. ``pattern`` is "elasticity", the demo's beam, or "grid", a
cube of nodes that touch 27 each. What is timed is the whole call, but no preconditioner's set-up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from .._arrays import namespace
from ..testing import to_host
from .case import Case
from .elasticity import cantilever
from .peer import CUPYX, SCIPY, NotAvailableError, Prepared
from .workload import Arrays, Workload

OURS = "sparsegpu"
#: Vectors that an iteration of conjugate gradients reads and writes.
_CG_VECTORS = 10
_RTOL = 1e-8
#: Iterations of cases that make a fixed number: of a grid's conjugate gradients, of gmres in cycles
#: of 20, of lobpcg, of minres.
_OF_GRID, _CYCLES, _CYCLE, _OF_MODES, _OF_MINRES = 100, 10, 20, 40, 200
#: A peer's answer may differ from ours by this fraction of the largest element.
_AGREEMENT = 1e-3

_METHODS = {"cg with amg": "cg"} | {
    name: name for name in ("cg", "gmres", "minres", "bicgstab", "lobpcg")
}
OPERATIONS = tuple(_METHODS)


@dataclass(eq=False)
class SolverWorkload(Workload):
    """A problem and a solver of it.

    Attributes
    ----------
    matrix : bsr_array
    right : array (n,) or (n, r)
        The right-hand sides, or where the search for modes starts.
    histories : dict of list of float
        By solver the residual norms at the start and after each iteration; of several columns the
        largest.
    told : float
        The last of ours, with all digits.
    """

    matrix: sg.bsr_array
    right: Any
    told: float = np.nan
    histories: dict[str, list[float]] = field(default_factory=dict)

    @property
    def iterations(self) -> int:
        """Iterations that our solver makes."""
        return len(self.histories[OURS]) - 1

    @property
    def flops(self) -> int:
        """Those of the products."""
        columns = self.right.shape[1] if self.right.ndim > 1 else 1
        return 2 * self.stored * columns * self.iterations

    @property
    def bytes(self) -> int:
        """Bytes that its iterations move, with the vectors of conjugate gradients."""
        of_matrix = sum(int(array.nbytes) for array in self.operands[:3])
        return (of_matrix + _CG_VECTORS * int(self.right.nbytes)) * self.iterations

    def results(self) -> Arrays:
        answer = self.call()
        return (answer[0],) if self.case.operation != "lobpcg" else answer[:2]

    def error(self) -> float:
        """Compare the residual with what the solver says of it, and that with the tolerance."""
        host = self.matrix.get() if namespace(self.right) is not np else self.matrix
        scipys, told = host.to_scipy(), self.told
        results, right = [to_host(array) for array in self.results()], to_host(self.right)
        if self.case.operation == "lobpcg":
            values, x = results
            residual = scipys @ x - x * values
        else:
            (x,) = results
            residual = right - scipys @ x
            goal = _keywords(self.case)["rtol"] * np.linalg.norm(right)
            if goal and not told <= goal:
                raise AssertionError(f"residual {told:.3g} after {self.iterations} iterations")
        # A recursive residual drifts by u * norm(A) * norm(x) an iteration.
        u = np.finfo(x.dtype).eps
        size = abs(scipys).sum(axis=1).max() * np.linalg.norm(x, axis=0).max()
        allowed = 4 * self.iterations * u * size + 1e-6 * told
        off = abs(float(np.linalg.norm(residual, axis=0).max()) - told)
        if not off <= allowed:
            raise AssertionError(f"the residual is {off:.3g} from what the solver says")
        return float(off / allowed)


def make_solver(case: Case, xp: ModuleType, seed: int = 0) -> SolverWorkload:
    """Return a case's problem and our solver of it, which has run once."""
    matrix, right = _PROBLEMS[case.pattern](case.size[0])
    columns = case.size[2]
    if case.operation == "lobpcg":
        right = np.random.default_rng(seed).standard_normal((matrix.shape[0], columns))
    elif columns > 1:
        right = np.stack([right] * columns, axis=1)
    if xp is not np:
        matrix, right = matrix.to_device(), xp.asarray(right)
    keywords = dict(_keywords(case))
    if case.operation == "cg with amg":
        keywords["M"] = sg.linalg.amg(matrix)
    if case.operation == "gmres":
        keywords["maxiter"] = _CYCLES  # ours, as SciPy's, counts cycles
    method = getattr(sg.linalg, _METHODS[case.operation])
    call = partial(_quietly, method, matrix, right, **keywords)
    parts = (matrix.data, matrix.indices, matrix.indptr, right)
    workload = SolverWorkload(case, call, matrix.data, parts, matrix, right)
    told: list[Any] = []
    if case.operation == "lobpcg":
        told = list(to_host(call(retResidualNormsHistory=True)[2]))
    else:
        call(residuals=told)
    workload.told, workload.histories[OURS] = float(np.max(told[-1])), _largest(told)
    return workload


def prepare_solver(peer: str, workload: SolverWorkload) -> Prepared:
    """Prepare another library's solver on a CSR matrix; its convergence goes to the workload."""
    case = workload.case
    if case.operation == "cg with amg":
        raise NotAvailableError("no multigrid")
    if case.operation != "lobpcg" and workload.right.ndim > 1:
        raise NotAvailableError("one right-hand side only")
    matrix, right, linalg = _peers_operands(peer, workload)
    keywords = dict(_keywords(case))
    if case.operation == "gmres":
        # cupyx counts iterations, SciPy cycles.
        keywords["maxiter"] = _CYCLES * (_CYCLE if peer == CUPYX else 1)
    if case.operation == "minres" and peer == CUPYX:
        keywords["tol"] = keywords.pop("rtol")
    method = getattr(linalg, _METHODS[case.operation])
    call = partial(_quietly, method, matrix, right, **keywords)
    told: list[Any] = []
    if case.operation == "lobpcg":
        answer = call(retResidualNormsHistory=True)
        told, answer = [to_host(norms) for norms in answer[2]], answer[:1]
    elif case.operation == "gmres":
        answer = call(callback=told.append, callback_type="pr_norm")
        told = [np.linalg.norm(to_host(right)) * float(norm) for norm in (1, *told)]
    else:
        start = np.linalg.norm(to_host(right))
        norm = partial(_residual_norm, matrix, right)
        answer = call(callback=lambda x: told.append(norm(x)))
        told = [start, *told]
    workload.histories[peer] = _largest(told)
    ours, theirs = to_host(workload.results()[0]), to_host(answer[0])
    if case.operation == "lobpcg":
        ours, theirs = (np.sort(values) for values in (ours, theirs))
    difference, largest = abs(ours - theirs).max(), abs(ours).max()
    if not difference <= (1e-2 if case.operation == "lobpcg" else _AGREEMENT) * largest:
        raise NotAvailableError(f"differs by {difference:.3g}")
    note = f"{len(workload.histories[peer]) - 1} iterations"
    return Prepared(call, answer[0], note, keep=(matrix, right))


def _peers_operands(peer: str, workload: SolverWorkload) -> tuple[Any, Any, ModuleType]:
    if peer == SCIPY:
        import scipy.sparse.linalg

        host = workload.matrix if namespace(workload.right) is np else workload.matrix.get()
        return host.to_scipy().tocsr(), to_host(workload.right), scipy.sparse.linalg
    import cupyx.scipy.sparse
    import cupyx.scipy.sparse.linalg

    matrix = cupyx.scipy.sparse.csr_matrix(workload.matrix.tocsr())
    return matrix, workload.right, cupyx.scipy.sparse.linalg


def _residual_norm(matrix: Any, right: Any, x: Any) -> float:
    return float(((right - matrix @ x) ** 2).sum() ** 0.5)


def _largest(told: list[Any]) -> list[float]:
    """Return norms of several columns as one number an iteration, of four digits."""
    return [float(f"{np.max(norms):.3e}") for norms in told]


def _keywords(case: Case) -> dict[str, Any]:
    """Return what all libraries' solvers are given."""
    if case.operation == "lobpcg":
        return {"largest": True, "tol": 1e-12, "maxiter": _OF_MODES}
    if case.operation == "gmres":
        return {"rtol": 0.0, "atol": 0.0, "restart": _CYCLE}
    if case.operation == "minres":
        return {"rtol": 0.0, "maxiter": _OF_MINRES}
    if case.operation == "cg" and case.pattern == "grid":
        return {"rtol": 0.0, "atol": 0.0, "maxiter": _OF_GRID}
    return {"rtol": _RTOL, "maxiter": 20_000}


def _quietly(method: Callable, *operands: Any, **keywords: Any) -> Any:
    """Call a solver that may not reach its tolerance, and says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return method(*operands, **keywords)


# -- problems -------------------------------------------------------------------------------


def beam(unknowns: int) -> tuple[sg.bsr_array, np.ndarray]:
    """Return the demo's elastic beam under its weight, four times as long as high."""
    across = 1
    while 8 * (across + 1) * (across + 2) <= unknowns:
        across += 1
    return cantilever(4 * across, across)


def cube(unknowns: int) -> tuple[sg.bsr_array, np.ndarray]:
    """Return a cube of nodes with 27 blocks of 3 x 3 a row, and random right-hand sides."""
    side = 1
    while 3 * (side + 1) ** 3 <= unknowns:
        side += 1
    nodes = np.pad(np.arange(side**3).reshape((side,) * 3), 1, constant_values=-1)
    steps = [(i, j, k) for i in range(3) for j in range(3) for k in range(3)]
    near = np.stack(
        [nodes[i : i + side, j : j + side, k : k + side].ravel() for i, j, k in steps], axis=1
    )
    there = near >= 0
    indptr = np.concatenate([[0], there.sum(axis=1).cumsum()])
    coupling = np.array([[-1, 0.2, 0.1], [0.2, -1, 0.2], [0.1, 0.2, -1]])
    data = np.broadcast_to(coupling, (int(indptr[-1]), 3, 3)).copy()
    rows = np.repeat(np.arange(side**3), there.sum(axis=1))
    data[near[there] == rows] = 40 * np.eye(3)
    n = 3 * side**3
    arrays = data, near[there].astype(np.int32), indptr.astype(np.int32)
    return sg.bsr_array(arrays, shape=(n, n)), np.random.default_rng(0).standard_normal(n)


_PROBLEMS = {"elasticity": beam, "grid": cube}
