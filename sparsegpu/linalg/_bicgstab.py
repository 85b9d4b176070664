"""The stabilised biconjugate gradient method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._cg import start
from ._progress import Progress
from ._system import System, check_limits

#: SciPy's codes of what cannot go on: no component along the shadow residual, no second step.
_NO_RHO, _NO_OMEGA = -10, -11


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
    ValueError, TypeError
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
    progress = Progress(system, limits, norm, tolerance)
    shadow = r.copy()
    p, v, t = (xp.zeros_like(r) for _ in range(3))
    p_hat, r_hat = (p, r) if M is None else (xp.empty_like(r), xp.empty_like(r))
    scalars = system.scalars(11)
    rho, along, square, ts, tt, alpha, omega, beta, minus_alpha, minus_omega, back = scalars
    RHO, ALONG, SQUARE, TS, TT, ALPHA, OMEGA, BETA, MINUS_ALPHA, MINUS_OMEGA, BACK = range(11)
    before, smallest = xp.ones_like(rho), np.finfo(system.dtype).eps ** 2
    # So that the first direction is the residual.
    alpha[...], omega[...] = 0, 1

    direction = system.prepare(scalars, [(p, [(None, r), (BETA, p), (BACK, v)])], [])
    measure = system.prepare(scalars, [], [(ALONG, shadow, v)])
    half = system.prepare(scalars, [(r, [(None, r), (MINUS_ALPHA, v)])], [(SQUARE, r, r)])
    second = system.prepare(scalars, [], [(TS, t, r), (TT, t, t)])
    whole = system.prepare(
        scalars,
        [
            (x, [(None, x), (ALPHA, p_hat), (OMEGA, r_hat)]),
            (r, [(None, r), (MINUS_OMEGA, t)]),
        ],
        [(SQUARE, r, r), (RHO, shadow, r)],
    )
    system.prepare(scalars, [], [(RHO, shadow, r)])(None)

    def step() -> None:
        progress.stop(~(abs(rho) > smallest * norm * progress.norm), _NO_RHO)
        progress.stop((omega == 0) | ~xp.isfinite(omega), _NO_OMEGA)
        xp.multiply(rho / before, alpha / omega, out=beta)
        xp.multiply(beta, -omega, out=back)
        direction(progress.active)
        before[...] = rho
        if M is not None:
            M(p, p_hat)
        system.apply(p_hat, v)
        measure(None)
        progress.stop(along == 0, _NO_OMEGA)
        xp.divide(rho, along, out=alpha)
        xp.negative(alpha, out=minus_alpha)
        half(progress.active)
        done = xp.sqrt(square.real) <= progress.tolerance  # half an iteration is enough
        if M is not None:
            M(r, r_hat)
        system.apply(r_hat, t)
        second(None)
        omega[...] = xp.where(done | (tt == 0), 0, ts / tt)
        xp.negative(omega, out=minus_omega)
        whole(progress.active)
        progress.advance(xp.sqrt(square.real))

    progress.run(step, lambda: x)
    return progress
