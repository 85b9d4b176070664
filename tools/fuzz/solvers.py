"""Cases of the solvers: systems of known solutions, right-hand sides that stop at different times.

The oracle multiplies dense matrices in wide arithmetic. What a solver says of its answer must be
true: within tolerance, or not after so many iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse.linalg

import sparsegpu
from sparsegpu.testing import to_host

from .case import Case, Holds, require
from .draws import Bsr, Draws
from .oracle import number

DTYPES = tuple(map(np.dtype, ("float32", "float64", "complex64", "complex128")))
_FLOAT64 = np.dtype(np.float64)


def _spectrum(draws: Draws, n: int, kind: str) -> np.ndarray:
    values = draws.rng().uniform(1, draws.choice((1.5, 10, 100)), n)
    if draws.chance(30):  # few different ones: exact after few iterations
        values = np.round(values)
    if kind == "indefinite":
        values[:: draws.integer(2, 4)] *= -1
    return values


def _matrix(draws: Draws, kind: str, dtype: np.dtype) -> Bsr:
    """Return a block-diagonal matrix of dense parts, so that not all blocks are stored."""
    size, parts, side = draws.choice((1, 2, 3, 4, 7)), draws.integer(1, 4), draws.integer(1, 3)
    rng, m = draws.rng(), size * side
    data, indices = [], []
    for part in range(parts):
        q = rng.standard_normal((m, m))
        if dtype.kind == "c":
            q = q + 1j * rng.standard_normal((m, m))
        q = np.linalg.qr(q)[0]
        a = (q * _spectrum(draws, m, kind)) @ q.conj().T
        a = (a + a.conj().T) / 2
        if kind == "general":
            a = a + 0.3 * np.triu(rng.standard_normal((m, m)), 1) / m
        blocks = a.reshape(side, size, side, size).swapaxes(1, 2)
        for i in range(side):
            data.append(blocks[i])
            indices.append(part * side + np.arange(side))
    indptr = np.arange(parts * side + 1) * side
    n = parts * m
    return Bsr(
        np.concatenate(data).astype(dtype), np.concatenate(indices).astype(np.int32),
        indptr.astype(np.int32), (n, n),
    )  # fmt: skip


def definite(draws: Draws, dtype: np.dtype) -> Bsr:
    """Return a Hermitian positive definite matrix."""
    return _matrix(draws, "definite", dtype)


def _case(draws: Draws, solver: str, kind: str) -> Case:
    real = solver == "minres"
    dtype = draws.choice(DTYPES[:2] if real else DTYPES)
    A = _matrix(draws, kind, dtype)
    n, r = A.shape[0], draws.choice((None, 1, 2, 3, 33))
    shape = (n,) if r is None else (n, r)
    b = draws.rng().standard_normal(shape).astype(dtype)
    if r is not None and r > 1:
        b[:, 0] = 0
        b[:, -1] *= draws.choice((1e-3, 1, 1e3))
    x0 = draws.rng().standard_normal(shape).astype(dtype) if draws.chance(30) else None
    rtol = draws.choice(
        (1e-2, 1e-4) if dtype.itemsize // (1 + (dtype.kind == "c")) == 4 else (1e-4, 1e-9)
    )
    arguments: dict[str, Any] = {"A": A, "b": b, "x0": x0, "rtol": rtol}
    arguments["maxiter"] = draws.choice((0, 1, 3, 1000, None))
    arguments["check_every"] = draws.integer(1, 40)
    jacobi = draws.chance(30) and kind == "definite"

    def call(A: Any, **keywords: Any) -> tuple:
        if jacobi:
            keywords["M"] = sparsegpu.linalg.block_jacobi(A)
        x, info = getattr(sparsegpu.linalg, solver)(A, **keywords)
        return x, info

    def expected(A: Bsr, b: Any, x0: Any, rtol: Any, maxiter: Any, check_every: Any) -> Holds:
        rtol = number(rtol)
        require(rtol >= 0, "a tolerance")
        for count, least in ((maxiter, 0), (check_every, 1)):
            if count is not None or count is check_every:
                require(isinstance(count, (int, np.integer)) and count >= least, "a count")
                require(not isinstance(count, bool), "a count")
        return Holds(_rule(A, b, x0, rtol, maxiter, solver, jacobi))

    return Case(
        f"linalg.{solver}",
        call,
        arguments,
        expected,
        documented=getattr(sparsegpu.linalg, solver),
        fixed=frozenset({"A", "b", "x0"}),
    )


def _rule(
    A: Bsr,
    b: np.ndarray,
    x0: Any,
    rtol: float,
    maxiter: int | None,
    solver: str,
    jacobi: bool,
) -> Callable[[Any], None]:
    def rule(got: Any) -> None:
        x, info = got
        x = to_host(x)
        assert x.shape == b.shape and x.dtype == b.dtype, f"{x.shape} {x.dtype}"
        wide = np.result_type(b.dtype, _FLOAT64)
        dense, eps = A.dense().astype(wide), np.finfo(b.dtype).eps
        columns = b.reshape(b.shape[0], -1).astype(wide)
        solution = x.reshape(columns.shape).astype(wide)
        norm, size = np.linalg.norm(columns, axis=0), np.linalg.norm(dense, 2)
        residual = np.linalg.norm(columns - dense @ solution, axis=0)
        infos = np.atleast_1d(info)
        assert infos.shape == norm.shape, f"info of shape {infos.shape}"
        most = 10 * len(x) if maxiter is None else maxiter
        scale = size * np.linalg.norm(solution, axis=0)  # minres measures by it
        goal = rtol * (10 * (norm + scale) if solver in {"minres", "gmres"} else norm)
        # What is updated departs from b - A x by the rounding of the largest iterate's product.
        begun = 0 if x0 is None else np.linalg.norm(x0.reshape(len(x0), -1).astype(wide), axis=0)
        drift = 400 * eps * (np.maximum(scale, size * begun) + norm)
        if solver == "minres":
            # Its tests are estimates: it may be as wrong as SciPy's, and an iteration earlier.
            # SciPy's own residuals differ threefold when float32 values change by an ulp.
            M = _diagonal_inverse(dense, A.blocksize[0]) if jacobi else None
            for kind in {wide, b.dtype}:
                theirs = _scipys_residuals(dense, columns, x0, rtol, maxiter, M, kind)
                goal = np.maximum(goal, 4 * theirs)
        for j, code in enumerate(infos):
            if code == 0:
                assert residual[j] <= goal[j] * (1 + 1e-6) + drift[j], (
                    f"column {j}: residual {residual[j]:.2e}, said to be within {goal[j]:.2e}"
                )
            else:
                assert code < 0 or 0 < code <= most, f"info {code} after at most {most}"
        if solver == "cg" and most >= 10 * len(x) and rtol >= 1e4 * eps:
            assert not infos.any(), f"not converged: info {infos}"

    return rule


def _diagonal_inverse(dense: np.ndarray, size: int) -> np.ndarray:
    """Return the inverse of a matrix's diagonal blocks, zero elsewhere."""
    inverse = np.zeros_like(dense)
    for first in range(0, len(dense), size):
        block = np.s_[first : first + size, first : first + size]
        inverse[block] = np.linalg.inv(dense[block])
    return inverse


def _scipys_residuals(
    dense: np.ndarray,
    columns: np.ndarray,
    x0: Any,
    rtol: float,
    maxiter: int | None,
    M: np.ndarray | None,
    dtype: np.dtype,
) -> np.ndarray:
    """Return the residuals of what SciPy's minres finds, computing in a dtype."""
    given, M = dense.astype(dtype), None if M is None else M.astype(dtype)
    starts = np.zeros_like(columns) if x0 is None else x0.reshape(columns.shape)
    found = []
    for b, start in zip(columns.T, starts.T):
        x, _ = scipy.sparse.linalg.minres(
            given, b.astype(dtype), start.astype(dtype), rtol=rtol, maxiter=maxiter, M=M
        )
        found.append(np.linalg.norm(b - dense @ x))
    return np.array(found)


def cg(draws: Draws) -> Case:
    return _case(draws, "cg", "definite")


def minres(draws: Draws) -> Case:
    return _case(draws, "minres", draws.choice(("definite", "indefinite")))


def bicgstab(draws: Draws) -> Case:
    return _case(draws, "bicgstab", draws.choice(("definite", "general")))


def gmres(draws: Draws) -> Case:
    return _case(draws, "gmres", draws.choice(("definite", "indefinite", "general")))


CASES = (cg, minres, bicgstab, gmres)
