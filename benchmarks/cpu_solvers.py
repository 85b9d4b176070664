"""The solvers on the CPU beside SciPy's, for ``python -m benchmarks.cpu``.

One matrix: 3x3 blocks of float64, n = 24,000, the neighbours of a grid of 20**3 points (up to 27
blocks a row), symmetric and positive definite. SciPy's solvers are given the same operand, which is
our array as a linear operator, and SciPy's own CSR array. All make the same number of iterations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse.linalg

import sparsegpu
from sparsegpu.benchmark.solvers import cube

#: How many times the time of SciPy's solver a solver may take, which gets the same operand.
BAR = 1.1
_RTOL = 1e-8
#: By solver what it is given besides.
SOLVERS: dict[str, dict[str, Any]] = {
    "cg": {},
    "minres": {},
    "bicgstab": {},
    "gmres": {"restart": 10},
}
#: Of lobpcg, which makes a fixed number of iterations: SciPy counts them from zero.
_MODES, _OURS_AND_SCIPYS = 4, (20, 19)
#: SciPy does not call back after the half step with which bicgstab may end.
_UNTOLD = {"bicgstab": 1}


def implementations(points: int = 20) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    """Yield each solver by name, bound to both libraries, after a check of what they do.

    "cpu" is ours, "scipy" is SciPy's with the same operand, "CSR" with an array of its own.
    """
    A, b = cube(3 * points**3)
    operands = {"scipy": sparsegpu.linalg.aslinearoperator(A), "CSR": A.to_scipy().tocsr()}
    for name, given in SOLVERS.items():
        keywords = {"rtol": _RTOL, **given}
        ours = partial(getattr(sparsegpu.linalg, name), A, b, **keywords)
        norms: list[float] = []
        answer, _ = ours(residuals=norms)
        bound: dict[str, Callable[[], object]] = {"cpu": ours}
        for which, matrix in operands.items():
            theirs = partial(getattr(scipy.sparse.linalg, name), matrix, b, **keywords)
            bound[which] = theirs
            made, expected = _iterations(name, theirs)
            if not made <= len(norms) - 1 <= made + _UNTOLD.get(name, 0):
                raise AssertionError(f"{name}: {len(norms) - 1} iterations, SciPy {made}")
            # Both are within the tolerance of a solution.
            off = np.linalg.norm(A @ (answer - expected)) / np.linalg.norm(b)
            if not off <= 2 * _RTOL:
                raise AssertionError(f"{name}: the products with both answers differ by {off:.2g}")
        yield name, bound
    yield "lobpcg", _lobpcg(A, operands)


def _lobpcg(A: Any, operands: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """Return the solvers of the largest eigenvalues, after a check of these."""
    start = np.random.default_rng(0).standard_normal((A.shape[0], _MODES))

    def bound_to(method: Callable[..., Any], matrix: Any, steps: int) -> Callable[..., Any]:
        keywords = {"largest": True, "tol": 1e-12, "maxiter": steps}

        def call(**more: Any) -> Any:
            with warnings.catch_warnings():  # which it does not reach
                warnings.simplefilter("ignore", UserWarning)
                return method(matrix, start, **keywords, **more)

        return call

    steps, scipys = _OURS_AND_SCIPYS
    bound = {"cpu": bound_to(sparsegpu.linalg.lobpcg, A, steps)}
    for which, matrix in operands.items():
        bound[which] = bound_to(scipy.sparse.linalg.lobpcg, matrix, scipys)
    found = {which: call(retResidualNormsHistory=True) for which, call in bound.items()}
    ours, _, norms = found.pop("cpu")
    for expected, _, told in found.values():
        # Norms at the start and after each iteration, SciPy's also of what it returns.
        if (len(norms) - 1, len(told) - 2) != (steps, steps):
            raise AssertionError(f"lobpcg: {len(norms) - 1} iterations, SciPy {len(told) - 2}")
        np.testing.assert_allclose(np.sort(ours), np.sort(expected), rtol=1e-9)
    return bound


def _iterations(name: str, solve: Callable[..., Any]) -> tuple[int, np.ndarray]:
    """Return how many iterations SciPy's solver makes, and its answer."""
    told: list[Any] = []
    each = {"callback_type": "pr_norm"} if name == "gmres" else {}  # else it counts cycles
    answer, info = solve(callback=told.append, **each)
    if info:
        raise AssertionError(f"SciPy's {name} does not converge")
    return len(told), answer
