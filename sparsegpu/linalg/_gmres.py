"""The generalised minimum residual method, restarted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._checks import check_choice
from ..engines import engine_module
from ..engines._solver_steps import ACTIVE, NORM, STEPS, Columns, Step
from ..engines._solver_steps import gmres as rows
from ..engines._solver_steps.gmres import (
    EPS,
    FACTOR,
    GOAL,
    MINUS,
    MOST,
    RESIDUAL,
    SCALE,
    SIZE,
    SQUARE,
)
from ._cg import start
from ._progress import Progress
from ._system import Limits, System, check_count, check_limits, to_host


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable | None = None,
    callback_type: str | None = None,
    check_every: int = 16,
    verbose: bool = False,
    residuals: list | None = None,
) -> tuple[Any, Any]:
    """Solve ``A x = b`` for any square A by restarted GMRES.

    As `scipy.sparse.linalg.gmres`, with the preconditioner on the left, for NumPy and CuPy, and
    for several right-hand sides at once: each column of b stops by itself. The result has the same
    bits with any ``check_every``.

    Parameters
    ----------
    A : bsr_array (n, n), LinearOperator, matrix of SciPy, cupyx or NumPy, or callable
        float32, float64, complex64 or complex128.
    b : array (n,) or (n, r)
        Integers count as float64.
    x0 : array in the shape of b, optional
        Where to start; zeros by default.
    rtol, atol : float
        A column is done at ``norm(b - A x) <= max(rtol * norm(b), atol)``, which is computed at
        the end of a cycle.
    restart : int, optional
        Iterations of a cycle, and so the number of vectors kept; min(20, n) by default.
    maxiter : int, optional
        Cycles, 10 n by default. With a callback of the type "legacy": iterations.
    M : as A, optional
        Preconditioner, close to the inverse of A.
    callback : callable, optional
        Called as ``callback_type`` says.
    callback_type : "x", "pr_norm" or "legacy", optional
        "x": with a copy of the iterate after every cycle. "pr_norm" and "legacy" (the default):
        with the norm of the preconditioned residual over that of b after every iteration.
    check_every : int
        On a GPU, iterations between two looks of the host, which looks at the end of a cycle, too.
    verbose : bool
        Print a line at the end; its iterations are cycles.
    residuals : list, optional
        The norms of the preconditioned residual at the start and after every iteration are
        appended.

    Returns
    -------
    x : array in the shape of b
    info : int, for b of shape (n, r) an integer NumPy array (r,)
        0: within tolerance. k > 0: not within tolerance after k cycles ("legacy": iterations). -1:
        no cycle could be made.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        As `cg`; a ``restart`` that is no positive integer, another ``callback_type``.

    Notes
    -----
    Saad and Schultz, "GMRES: a generalized minimal residual algorithm for solving nonsymmetric
    linear systems", 1986. A vector is made orthogonal to eight others at a time. On a GPU each part
    of a cycle is captured once and replayed, where `cg` says that an iteration is.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.triu(np.ones((4, 4))), blocksize=(2, 2))
    >>> x, info = sparsegpu.linalg.gmres(A, np.array([4.0, 3, 2, 1]))
    >>> np.allclose(x, 1), info
    (True, 0)
    """
    function = "gmres"
    system = System(function, A, b, x0, M)
    n = system.b.shape[0]
    limits = check_limits(
        function, rtol, atol, maxiter, check_every, callback, verbose, residuals, default=10 * n
    )
    check_choice(function, "callback_type", callback_type, (None, "x", "pr_norm", "legacy"))
    size = 20 if restart is None else check_count(function, "restart", restart, 1)
    with system.on_device(), np.errstate(all="ignore"):
        progress = _Gmres(system, limits, max(min(size, n), 1), callback_type or "legacy").run()
        return system.shaped(system.x), progress.info()


def _preconditioned(system: System, v: Any, out: Any) -> Any:
    """Return the product of M with v, written to out; without M v itself."""
    return v if system.precondition is None else system.precondition(v, out)


class _Gmres:
    """The basis, and the small triangular systems of all columns.

    Every column goes through a cycle by itself: it is `running` until its preconditioned residual
    is as small as the cycle is meant to bring it. What a column waits for is the end of the cycle.
    """

    def __init__(self, system: System, limits: Limits, restart: int, kind: str):
        xp = system.xp
        self.system, self.limits, self.restart = system, limits, restart
        self.kind = kind if limits.callback is not None else None
        tolerance, self.r = start(system, limits)
        (n, r), norm = self.r.shape, system.norms(self.r)
        self.progress = progress = Progress(system, limits, norm, tolerance, rows.rows(restart))
        self.of_b = system.norms(system.b)
        padding = 0 if xp is np else -n % 4  # vectors begin at multiples of 16 bytes
        self.basis = xp.zeros((restart + 1, n + padding, r), system.dtype)[:, :n]
        self.q = xp.zeros_like(self.r)
        self.w = self.r if system.precondition is None else xp.zeros_like(self.r)
        self.newest, self.products = xp.zeros_like(self.r), xp.zeros_like(self.r)
        of_M = system.norms(_preconditioned(system, system.b, self.q))
        numbers = progress.numbers
        numbers[NORM] = system.norms(_preconditioned(system, self.r, self.w))
        numbers[RESIDUAL], numbers[GOAL] = norm, of_M * xp.minimum(1, tolerance / self.of_b)
        numbers[FACTOR], numbers[MINUS] = 1, -1
        numbers[SIZE], numbers[MOST] = restart, restart
        numbers[EPS] = np.finfo(system.dtype).eps
        #: Of iterations, as `progress.columns` is of cycles.
        self.columns = Columns(
            xp.zeros((3, r), bool), xp.zeros((3, r), np.int64), xp.zeros((restart, r))
        )
        self.running, self.inner = self.columns.flags[ACTIVE], self.columns.counts[STEPS]
        self.rounds, self.most = 0, restart
        self.extend, self.add_combination = (
            getattr(engine_module(xp, "arnoldi", system.function), name)
            for name in ("extend_basis", "add_combination")
        )
        # None of these refers to this object: what holds memory of a GPU is no cycle.
        self._begin = system.repeated(self._beginning())
        self._multiply = system.repeated(self._product())
        self._extensions: dict[int, Callable[[], None]] = {}
        self._ends: dict[int, Callable[[], None]] = {}

    def _step(self, name: str, columns: Columns) -> Step:
        return Step(f"gmres.{name}", columns)

    def _beginning(self) -> Callable[[], None]:
        """Return what makes the first vector of a cycle of the residual."""
        system, numbers, active = self.system, self.progress.numbers, self.progress.active
        r, w, newest, running = self.r, self.w, self.newest, self.running
        started = self._step("start", self.columns)
        measure = system.prepare(numbers, [], [(SQUARE, w, w)], running, started)
        first = [(v, [(SCALE, w)]) for v in (self.basis[0], newest)]
        unit = system.prepare(numbers, first, [], running)

        def begin() -> None:
            running[...] = active
            _preconditioned(system, r, w)
            measure()
            unit()

        return begin

    def _product(self) -> Callable[[], None]:
        """Return what multiplies the newest vector, for every iteration the same memory."""
        system, newest, products, w = self.system, self.newest, self.products, self.w

        def multiply() -> None:
            _preconditioned(system, system.apply(newest, products), w)

        return multiply

    def _extension(self, k: int) -> Callable[[], None]:
        """Return what makes a product the next vector of the basis, in iteration k of a cycle."""
        if k in self._extensions:
            return self._extensions[k]
        rotated = self._step("rotate", self.columns)
        w = self.products if self.system.precondition is None else self.w
        extend = self.extend(
            self.progress.numbers, self.basis, k + 1, w, self.newest, self.running, rotated
        )
        self._extensions[k] = self.system.repeated(extend)
        return self._extensions[k]

    def _ending(self, made: int) -> Callable[[], None]:
        """Return what corrects x after so many iterations, and looks at the residual."""
        if made in self._ends:
            return self._ends[made]
        numbers, system, active = self.progress.numbers, self.system, self.progress.active
        r, q = self.r, self.q
        correct = self.add_combination(numbers, self.basis, made, system.x, active)
        measure = system.prepare(
            numbers,
            [(r, [(None, system.b), (MINUS, q)])],
            [(SQUARE, r, r)],
            active,
            self._step("cycle", self.progress.columns),
        )

        def end() -> None:
            correct()
            system.apply(system.x, q)
            measure()

        self._ends[made] = system.repeated(end)
        return self._ends[made]

    def _cycle(self, most: int) -> None:
        """Iterate from the residual to the next, at most ``most`` times."""
        system, limits, progress = self.system, self.limits, self.progress
        if most != self.most:
            progress.numbers[MOST], self.most = most, most
        self._begin()
        told = limits.callback if self.kind in {"legacy", "pr_norm"} else None
        before = to_host(self.inner).copy() if limits.residuals is not None else None
        for made in range(1, most + 1):
            self._multiply()
            self._extension(made - 1)()
            if told is not None:
                norm = to_host(progress.norm / self.of_b)
                told(float(norm[0]) if len(system.shape) == 1 else norm)
            every = system.between_looks(limits.check_every) if told is None else 1
            if made < most and made % every == 0 and not to_host(self.running).any():
                break
        self._ending(made)()
        if before is not None:
            # Iterations after the last column stopped are none.
            count = int((to_host(self.inner) - before).max())
            slots = (self.rounds + np.arange(count)) % self.restart
            progress.tell(to_host(self.columns.history)[slots])
        self.rounds += made

    def run(self) -> Progress:
        progress, limits = self.progress, self.limits
        legacy, cycles = self.kind == "legacy", 0
        progress.tell(to_host(progress.norm)[None])
        while to_host(progress.active).any():
            done = int(to_host(self.inner).max()) if legacy else cycles
            if done >= limits.maxiter:
                break
            self._cycle(min(limits.maxiter - done if legacy else self.restart, self.restart))
            cycles += 1
            if self.kind == "x" and limits.callback is not None:
                limits.callback(self.system.shaped(self.system.x).copy())
        progress.norm[...] = progress.numbers[RESIDUAL].real
        if legacy:
            progress.steps = self.inner
        return progress
