"""The generalised minimum residual method, restarted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._checks import check_choice
from ._cg import start
from ._progress import Progress
from ._system import Limits, System, check_count, check_limits, to_host

#: Vectors of the basis that one pass takes (with the new one, one compiled signature).
_GROUP = 3


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
        Iterations between two looks of the host, which looks at the end of a cycle, too.
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
    linear systems", 1986. A vector is made orthogonal to three others at a time.

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


class _Gmres:
    """The vectors and the small triangular systems of all columns."""

    def __init__(self, system: System, limits: Limits, restart: int, kind: str):
        xp = system.xp
        self.system, self.limits, self.restart = system, limits, restart
        self.kind = kind if limits.callback is not None else None
        self.eps = float(np.finfo(system.dtype).eps)
        tolerance, self.r = start(system, limits)
        self.progress = Progress(system, limits, system.norms(self.r), tolerance)
        self.of_b = system.norms(system.b)
        self.basis = [xp.zeros_like(self.r) for _ in range(restart + 1)]
        self.w, self.q = xp.zeros_like(self.r), xp.zeros_like(self.r)
        self.scalars = system.scalars(2 * _GROUP + 2)
        self.SCALE, self.SQUARE = 2 * _GROUP, 2 * _GROUP + 1
        shape = (restart + 1, *self.of_b.shape)
        self.R = xp.zeros((restart, *shape), system.wide)  # column, row
        self.g = xp.zeros(shape, system.wide)
        self.cosine, self.sine = xp.zeros(shape), xp.zeros(shape, system.wide)
        self.history = xp.zeros(shape)
        preconditioned = self._precondition(system.b, self.w)
        self.factor = xp.ones_like(self.of_b)
        self.goal = system.norms(preconditioned) * xp.minimum(1, tolerance / self.of_b)
        self.inner = xp.zeros(self.of_b.shape, np.int64)
        self.told = False  # whether `residuals` has the norm at the start
        self.running = xp.zeros_like(self.progress.active)
        self._passes: dict[tuple, Callable[[], None]] = {}
        self._measure = system.prepare(self.scalars, [], [(self.SQUARE, self.w, self.w)])

    def _precondition(self, v: Any, out: Any) -> Any:
        if self.system.precondition is not None:
            return self.system.precondition(v, out)
        out[...] = v
        return out

    def _groups(self, count: int) -> list[list[Any]]:
        return [self.basis[i : min(i + _GROUP, count)] for i in range(0, count, _GROUP)]

    def _norm(self) -> Any:
        self._measure()
        return self.system.xp.sqrt(self.scalars[self.SQUARE].real)

    def _pass(self, updates: list, dots: list, active: Any = None) -> None:
        """Make a pass, which is prepared the first time."""
        key = (
            tuple((id(to), *((row, id(v)) for row, v in terms)) for to, terms in updates),
            tuple((row, id(u), id(v)) for row, u, v in dots),
            id(active),
        )
        if key not in self._passes:
            self._passes[key] = self.system.prepare(self.scalars, updates, dots, active)
        self._passes[key]()

    def _scaled(self, target: Any, norm: Any, active: Any) -> None:
        """Write w over its norm."""
        self.scalars[self.SCALE] = self.system.xp.where(norm > 0, 1 / norm, 0)
        self._pass([(target, [(self.SCALE, self.w)])], [], active)

    def _orthogonalise(self, k: int, active: Any) -> Any:
        """Take the first k + 1 vectors of the basis out of w; return the coefficients."""
        scalars, h = self.scalars, []
        for group in self._groups(k + 1):
            count = len(group)
            dots = [(i, v, self.w) for i, v in enumerate(group)]
            self._pass([], dots)
            h.extend(scalars[:count].copy())
            scalars[_GROUP : _GROUP + count] = -scalars[:count]
            terms = [(None, self.w), *((_GROUP + i, v) for i, v in enumerate(group))]
            self._pass([(self.w, terms)], [], active)
        return h

    def _inner(self, k: int, running: Any, norm: Any) -> tuple[Any, Any, Any]:
        """Make iteration k of a cycle; return who goes on, the residual norms, who is exact."""
        xp, system = self.system.xp, self.system
        system.apply(self.basis[k], self.q)
        self._precondition(self.q, self.w)
        before = self._norm()
        h = self._orthogonalise(k, running)
        length = self._norm()
        exact = length <= self.eps * before
        length = xp.where(exact, 0, length)
        self._scaled(self.basis[k + 1], length, running)
        for i in range(k):  # the rotations so far
            c, s = self.cosine[i], self.sine[i]
            h[i], h[i + 1] = c * h[i] + s * h[i + 1], c * h[i + 1] - s.conj() * h[i]
        size = abs(h[k])
        root = xp.hypot(size, length)
        phase = xp.where(size > 0, h[k] / size, 1)
        self.cosine[k] = xp.where(root > 0, size / root, 1)
        self.sine[k] = xp.where(root > 0, phase * length / root, 0)
        h[k] = phase * root
        # The column of one that does not run any more is that of the identity.
        for i in range(k + 1):
            self.R[k, i] = xp.where(running, h[i], float(i == k))
        following = -self.sine[k].conj() * self.g[k]
        self.g[k] = xp.where(running, self.cosine[k] * self.g[k], 0)
        self.g[k + 1] = xp.where(running, following, 0)
        norm = xp.where(running, abs(following), norm)
        self.inner = self.inner + running
        return running & ~(norm <= self.goal) & ~exact & xp.isfinite(norm), norm, exact & running

    def _cycle(self, most: int) -> None:
        """Iterate from the residual to the next, at most ``most`` times."""
        xp, system, progress = self.system.xp, self.system, self.progress
        active = progress.active
        self._precondition(self.r, self.w)
        norm = self._norm()
        self._scaled(self.basis[0], norm, active)
        self.g[0] = xp.where(active, norm, 0)
        if not self.told:
            progress.tell(to_host(norm)[None])
            self.told = True
        running, exact, before = self.running, active & (norm == 0), self.inner
        running[...] = active & (norm > 0)
        told_norms = self.limits.callback if self.kind in {"legacy", "pr_norm"} else None
        every = self.limits.check_every if told_norms is None else 1
        made = 0
        for k in range(min(most, self.restart)):
            running[...], norm, found = self._inner(k, running, norm)
            exact = exact | found
            self.history[k] = norm
            made = k + 1
            if told_norms is not None:
                told = to_host(norm / self.of_b)
                told_norms(float(told[0]) if len(system.shape) == 1 else told)
            if made % every == 0 and not to_host(running).any():
                break
        self._correct(made)
        system.apply(system.x, self.q)
        self.scalars[self.SCALE] = -1
        self._pass(
            [(self.r, [(None, system.b), (self.SCALE, self.q)])],
            [(self.SQUARE, self.r, self.r)],
            active,
        )
        residual = xp.sqrt(self.scalars[self.SQUARE].real)
        iterations = int(to_host(self.inner - before).max())
        progress.tell(to_host(self.history[:iterations]))
        progress.advance(residual)
        progress.stop(exact)  # the method has nothing left to try
        self.factor = xp.where(
            norm <= self.goal,
            xp.maximum(self.eps, self.factor / 4),
            xp.minimum(1, self.factor * 1.5),
        )
        self.goal = norm * xp.minimum(self.factor, progress.tolerance / residual)

    def _correct(self, count: int) -> None:
        """Add to x what the triangular systems say."""
        xp, system, scalars = self.system.xp, self.system, self.scalars
        y = self.g[:count].copy()
        for k in reversed(range(count)):
            diagonal = self.R[k, k]
            y[k] = xp.where(diagonal != 0, y[k] / diagonal, 0)
            for i in range(k):
                y[i] -= self.R[k, i] * y[k]
        for first, group in zip(range(0, count, _GROUP), self._groups(count)):
            scalars[: len(group)] = y[first : first + len(group)]
            terms = [(None, system.x), *enumerate(group)]
            self._pass([(system.x, terms)], [], self.progress.active)

    def run(self) -> Progress:
        progress, limits = self.progress, self.limits
        legacy, cycles = self.kind == "legacy", 0
        while to_host(progress.active).any():
            done = int(to_host(self.inner).max()) if legacy else cycles
            if done >= limits.maxiter:
                break
            self._cycle(limits.maxiter - done if legacy else self.restart)
            cycles += 1
            if self.kind == "x" and limits.callback is not None:
                limits.callback(self.system.shaped(self.system.x).copy())
        if not self.told:
            progress.tell(to_host(self.progress.norm)[None])
        if legacy:
            progress.steps = self.inner
        return progress
