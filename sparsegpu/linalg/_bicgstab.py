"""The stabilised biconjugate gradient method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engines._solver_steps import bicgstab as rows
from ..engines._solver_steps.bicgstab import (
    ALONG,
    ALPHA,
    BACK,
    BETA,
    LEAST,
    MINUS_ALPHA,
    MINUS_OMEGA,
    OMEGA,
    RHO,
    SQUARE,
    TS,
    TT,
)
from ._cg import start
from ._progress import Progress
from ._system import System, check_limits


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable | None = None,
    check_every: int = 16,
    verbose: bool = False,
    residuals: list | None = None,
) -> tuple[Any, Any]:
    """Solve ``A x = b`` for any square A by stabilised biconjugate gradients.

    As `scipy.sparse.linalg.bicgstab`, for NumPy and CuPy, and for several right-hand sides at once:
    each column of b stops by itself. The result has the same bits with any ``check_every``.

    Parameters
    ----------
    A : bsr_array (n, n), LinearOperator, matrix of SciPy, cupyx or NumPy, or callable
        float32, float64, complex64 or complex128.
    b : array (n,) or (n, r)
        Integers count as float64.
    x0 : array in the shape of b, optional
        Where to start; zeros by default.
    rtol, atol : float
        A column is done at ``norm(b - A x) <= max(rtol * norm(b), atol)``.
    maxiter : int, optional
        10 n by default.
    M : as A, optional
        Preconditioner, close to the inverse of A.
    callback, check_every, verbose, residuals
        As in `cg`.

    Returns
    -------
    x : array in the shape of b
    info : int, for b of shape (n, r) an integer NumPy array (r,)
        0: within tolerance. k > 0: not within tolerance after k iterations. -1: no iteration could
        be made. -10, -11: the method broke down, as in SciPy.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        As `cg`.

    Notes
    -----
    Van der Vorst, "Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the solution of
    nonsymmetric linear systems", 1992. An iteration is two products with A, two with M, and five
    passes over vectors.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.triu(np.ones((4, 4))), blocksize=(2, 2))
    >>> x, info = sparsegpu.linalg.bicgstab(A, np.array([4.0, 3, 2, 1]))
    >>> np.allclose(x, 1), info
    (True, 0)
    """
    system = System("bicgstab", A, b, x0, M)
    limits = check_limits(
        "bicgstab", rtol, atol, maxiter, check_every, callback, verbose, residuals,
        default=10 * system.b.shape[0],
    )  # fmt: skip
    with system.on_device(), np.errstate(all="ignore"):
        progress = _solve(system, limits)
        return system.shaped(system.x), progress.info()


def _solve(system: System, limits: Any) -> Progress:
    xp, x, M = system.xp, system.x, system.precondition
    tolerance, r = start(system, limits)
    norm = system.norms(r)
    progress = Progress(system, limits, norm, tolerance, rows.ROWS)
    shadow = r.copy()
    p, v, t = (xp.zeros_like(r) for _ in range(3))
    p_hat, r_hat = (p, r) if M is None else (xp.empty_like(r), xp.empty_like(r))
    numbers, active = progress.numbers, progress.active
    numbers[OMEGA] = 1  # the first direction is the residual: its other factors are zeros
    numbers[LEAST] = np.finfo(system.dtype).eps ** 2 * norm

    direction = progress.prepare([(p, [(None, r), (BETA, p), (BACK, v)])], [], active)
    measure = progress.prepare([], [(ALONG, shadow, v)], active, "length")
    half = progress.prepare([(r, [(None, r), (MINUS_ALPHA, v)])], [(SQUARE, r, r)], active)
    second = progress.prepare([], [(TS, t, r), (TT, t, t)], active, "second")
    whole = progress.prepare(
        [
            (x, [(None, x), (ALPHA, p_hat), (OMEGA, r_hat)]),
            (r, [(None, r), (MINUS_OMEGA, t)]),
        ],
        [(SQUARE, r, r), (RHO, shadow, r)],
        active,
        "direction",
    )
    progress.prepare([], [(RHO, shadow, r)])()

    def iteration() -> None:
        direction()
        if M is not None:
            M(p, p_hat)
        system.apply(p_hat, v)
        measure()
        half()
        if M is not None:
            M(r, r_hat)
        system.apply(r_hat, t)
        second()
        whole()

    progress.run(iteration, lambda: x)
    return progress
