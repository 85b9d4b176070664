"""The conjugate gradient method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engines._solver_steps import cg as cg_rows
from ..engines._solver_steps.cg import (
    ALPHA,
    BETA,
    CURVATURE,
    FOLLOWING,
    MINUS_ALPHA,
    RHO,
    SQUARE,
)
from ._progress import Progress
from ._system import System, check_limits


def cg(
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
    """Solve ``A x = b`` for a Hermitian positive definite A by conjugate gradients.

    As `scipy.sparse.linalg.cg`, for NumPy and CuPy, and for several right-hand sides at once: each
    column of b stops by itself, at its first iterate with ``norm(b - A x) <= max(rtol * norm(b),
    atol)``. Scalars stay where the vectors are; the host looks at the residuals once in
    ``check_every`` iterations. The result has the same bits with any ``check_every``.

    Parameters
    ----------
    A : bsr_array (n, n), LinearOperator, matrix of SciPy, cupyx or NumPy, or callable
        float32, float64, complex64 or complex128. A callable gets vectors in the shape of b.
    b : array (n,) or (n, r)
        Integers count as float64.
    x0 : array in the shape of b, optional
        Where to start; zeros by default.
    rtol, atol : float
        Tolerances of the residual norm.
    maxiter : int, optional
        10 n by default.
    M : as A, optional
        Preconditioner, close to the inverse of A and Hermitian positive definite, as from
        `block_jacobi` or `amg`.
    callback : callable, optional
        Called with a copy of the iterate after every iteration.
    check_every : int
        On a GPU, iterations between two looks of the host; those after the last column stopped
        change nothing.
    verbose : bool
        Print a line at the end.
    residuals : list, optional
        The residual norm of the start and after each iteration is appended, (r,) for several
        columns; that of a column that has stopped is repeated.

    Returns
    -------
    x : array in the shape of b
        For a column of zeros: zeros.
    info : int, for b of shape (n, r) an integer NumPy array (r,)
        0: within tolerance. k > 0: not within tolerance after k iterations. -1: no iteration could
        be made.

    Raises
    ------
    ValueError
        A that is not square or a batch, other shapes that do not fit, arrays on two GPUs, a
        negative number.
    TypeError
        What is none of these; arrays in other dtypes; host and device arrays in one call.
    NotImplementedError
        While a CUDA graph is captured: the host looks at residuals.

    Notes
    -----
    On a GPU a few iterations are captured once, into a CUDA graph, and replayed, where each of A
    and M is a `sparsegpu.bsr_array` or made by `block_jacobi` or `amg`; else they are launched. The
    bits are the same.

    Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems", 1952. An
    iteration is a product with A, one with M, and three passes over vectors (with M four): the
    curvature, the residual and its norm, and the solution with the next direction.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> x, info = sparsegpu.linalg.cg(A, np.ones(4))
    >>> np.allclose(x, [1, 1 / 2, 1 / 3, 1 / 4]), info
    (True, 0)
    """
    system = System("cg", A, b, x0, M)
    limits = check_limits(
        "cg", rtol, atol, maxiter, check_every, callback, verbose, residuals,
        default=10 * system.b.shape[0],
    )  # fmt: skip
    with system.on_device(), np.errstate(all="ignore"):
        progress = _solve(system, limits)
        return system.shaped(system.x), progress.info()


def _solve(system: System, limits: Any) -> Progress:
    x, M = system.x, system.precondition
    tolerance, r = start(system, limits)
    progress = Progress(system, limits, system.norms(r), tolerance, cg_rows.ROWS)
    z = r if M is None else M(r, system.xp.empty_like(r))
    p, q = z.copy(), system.xp.empty_like(r)
    active, moving = progress.active, progress.moving

    measure = progress.prepare([], [(CURVATURE, p, q)], active, "length")
    updates = [(r, [(None, r), (MINUS_ALPHA, q)])]
    if M is None:
        residual = progress.prepare(updates, [(SQUARE, r, r)], active, "direction")
    else:
        residual = progress.prepare(updates, [], active)
        dots = [(SQUARE, r, r), (FOLLOWING, r, z)]
        preconditioned = progress.prepare([], dots, active, "preconditioned")
    following = progress.prepare(
        [(x, [(None, x), (ALPHA, p)]), (p, [(None, z), (BETA, p)])], [], moving
    )
    progress.prepare([], [(RHO, r, z)])()

    def iteration() -> None:
        system.apply(p, q)
        measure()
        residual()
        if M is not None:
            M(r, z)
            preconditioned()
        following()

    progress.run(iteration, lambda: x)
    return progress


def start(system: System, limits: Any) -> tuple[Any, Any]:
    """Return the tolerance of each column and the first residual; columns of zeros are solved."""
    xp = system.xp
    norm = system.norms(system.b)
    tolerance = xp.fmax(limits.rtol * norm, limits.atol)  # infinity times zero is NaN
    if not system.x0_is_zero:
        system.x[...] = xp.where(norm != 0, system.x, 0)
    return tolerance, system.residual()
