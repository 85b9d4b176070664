"""The minimum residual method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._checks import bad_value, check_flags, check_scalar
from ..engines._solver_steps import minres as rows
from ..engines._solver_steps.minres import (
    ALONG,
    BETA,
    C1,
    C2,
    COSINE,
    CURVED,
    EPS,
    FIRST,
    LENGTH,
    OVER_BETA,
    OVER_GAMMA,
    OVER_OLD,
    PHI,
    RTOL,
    SMALLEST,
    SQUARE,
)
from ._cg import start
from ._progress import Progress
from ._system import System, check_limits, to_host


def minres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    shift: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable | None = None,
    show: bool = False,
    check: bool = False,
    check_every: int = 16,
    verbose: bool = False,
    residuals: list | None = None,
) -> tuple[Any, Any]:
    """Solve ``(A - shift I) x = b`` for a real symmetric A, definite or not.

    As `scipy.sparse.linalg.minres`, for NumPy and CuPy, and for several right-hand sides at once:
    each column of b stops by itself. The result has the same bits with any ``check_every``.

    Parameters
    ----------
    A : bsr_array (n, n), LinearOperator, matrix of SciPy, cupyx or NumPy, or callable
        float32 or float64, symmetric.
    b : array (n,) or (n, r)
        Integers count as float64.
    x0 : array in the shape of b, optional
        Where to start; zeros by default.
    rtol : float
        A column is done at ``norm(r) <= rtol * norm(A) * norm(x)`` with estimates of both norms,
        or when the residual is as orthogonal to the range of a singular A.
    shift : float
        What is subtracted from the diagonal of A.
    maxiter : int, optional
        5 n by default.
    M : as A, optional
        Preconditioner, close to the inverse of A, symmetric positive definite. Residual norms are
        then those of ``sqrt(r M r)``.
    show : bool
        As ``verbose``.
    check : bool
        Refuse an A or M that a product shows not to be symmetric.
    callback, check_every, verbose, residuals
        As in `cg`.

    Returns
    -------
    x : array in the shape of b
    info : int, for b of shape (n, r) an integer NumPy array (r,)
        0: within tolerance, or as near as rounding allows. k > 0: not after k iterations. -1: no
        iteration could be made. -2: M is not positive definite.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        As `cg`; complex operands are a TypeError; an M that is seen not to be positive definite at
        the start, and with ``check`` an A or M that is not symmetric, are a ValueError.

    Notes
    -----
    Paige and Saunders, "Solution of sparse indefinite systems of linear equations", 1975; the
    tests are those of SciPy. An iteration is a product with A, one with M, and four passes over
    vectors.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, -2, 3, -4]), blocksize=(2, 2))
    >>> x, info = sparsegpu.linalg.minres(A, np.ones(4))
    >>> np.allclose(x, [1, -1 / 2, 1 / 3, -1 / 4]), info
    (True, 0)
    """
    function = "minres"
    system = System(function, A, b, x0, M, real=True)
    shift = check_scalar(function, "shift", shift, complex_allowed=False)
    check_flags(function, show=show, check=check, verbose=verbose)
    limits = check_limits(
        function, rtol, 0.0, maxiter, check_every, callback, show or verbose, residuals,
        default=5 * system.b.shape[0],
    )  # fmt: skip
    with system.on_device(), np.errstate(all="ignore"):
        progress = _solve(system, limits, shift, check)
        return system.shaped(system.x), progress.info()


def _solve(system: System, limits: Any, shift: float, check: bool) -> Progress:
    xp, x, M = system.xp, system.x, system.precondition
    system.shift(shift)
    _, r2 = start(system, limits)
    y = r2 if M is None else M(r2, xp.empty_like(r2))
    square = system.scalars(1)
    system.prepare(square, [], [(0, r2, y)])()
    if to_host(square < 0).any():
        raise bad_value(system.function, "M", "a positive definite operator", "an indefinite one")
    if check:
        _check_symmetric(system, y, r2)
    first = xp.sqrt(square[0])
    progress = Progress(system, limits, first, xp.zeros_like(first), rows.ROWS)
    numbers, active = progress.numbers, progress.active
    numbers[BETA], numbers[FIRST], numbers[OVER_BETA] = first, first, 1 / first
    numbers[COSINE], numbers[SMALLEST], numbers[RTOL] = -1, np.inf, limits.rtol
    numbers[EPS] = np.finfo(system.dtype).eps

    r1, v, q, w, w1, w2 = (xp.zeros_like(r2) for _ in range(6))
    unit = progress.prepare([(v, [(OVER_BETA, y)])], [], active)
    lanczos = progress.prepare(
        [(q, [(None, q), (OVER_OLD, r1)])], [(ALONG, v, q)], active, "lanczos"
    )
    # With a preconditioner the norm is that of r2 and M r2, else that of r2.
    of_M = [] if M is None else [progress.prepare([], [(SQUARE, r2, y)], active, "rotate")]
    following = progress.prepare(
        [(q, [(None, q), (CURVED, r2)]), (r1, [(None, r2)]), (r2, [(None, q)])],
        [] if of_M else [(SQUARE, r2, r2)],
        active,
        None if of_M else "rotate",
    )
    move = progress.prepare(
        [
            (w1, [(None, w2)]),
            (w2, [(None, w)]),
            (w, [(OVER_GAMMA, v), (C1, w1), (C2, w2)]),
            (x, [(None, x), (PHI, w)]),
        ],
        [(LENGTH, x, x)],
        active,
        "test",
    )

    def iteration() -> None:
        unit()
        system.apply(v, q)
        lanczos()
        following()
        if M is not None:
            M(r2, y)
            of_M[0]()
        move()

    progress.run(iteration, lambda: x)
    return progress


def _check_symmetric(system: System, y: Any, r: Any) -> None:
    """Refuse A or M where ``(A y, A y)`` and ``(y, A A y)`` differ, or the like for M."""
    xp, M = system.xp, system.precondition
    w, twice, scalars = xp.empty_like(y), xp.empty_like(y), system.scalars(2)
    eps = float(np.finfo(system.dtype).eps)

    def compare(argument: str, one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
        system.prepare(scalars, [], [(0, *one), (1, *other)])()
        s, t = to_host(scalars)
        if (abs(s - t) > (s + eps) * eps ** (1 / 3)).any():
            raise bad_value(system.function, argument, "a symmetric operator", "another one")

    system.apply(y, w)
    system.apply(w, twice)
    compare("A", (w, w), (y, twice))
    if M is not None:
        M(y, twice)
        compare("M", (y, y), (r, twice))
