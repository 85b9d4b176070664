"""Which columns of a system are done, and the loop that looks at them now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engines._solver_steps import (
    ACTIVE,
    CODE,
    MOVING,
    NORM,
    REACHED,
    STEPS,
    TOLERANCE,
    Columns,
    Step,
)
from ._system import Limits, System, to_host

#: Iterations between two looks at most: so many norms are kept.
_MOST = 1 << 10


class Progress:
    """How far each column is; all of it is kept where the vectors are.

    A column stops by itself, in the iteration in which its residual norm is within tolerance: from
    then on it is not ``active`` and no iteration changes it. So it does not matter how often the
    host looks. Columns are counted and stopped by the steps after passes
    (`engines._solver_steps`), or by `advance` and `stop`.

    Attributes
    ----------
    numbers : float64 or complex128 (rows, r)
        What passes read and write; its first rows are the residual norm and the tolerance.
    active, moving, converged : bool (r,)
        Views, as the next are: of what is not done, what the last iteration changed, what is done.
    steps : int64 (r,), iterations made
    code : int64 (r,), what a solver broke down of (negative), 0 else
    """

    def __init__(self, system: System, limits: Limits, norm: Any, tolerance: Any, rows: int = 2):
        xp = system.xp
        self.system, self.limits = system, limits
        every = system.between_looks(limits.check_every)
        self._every = max(min(every, limits.maxiter, _MOST), 1)
        self.numbers = system.scalars(rows)
        self.numbers[NORM], self.numbers[TOLERANCE] = norm, tolerance
        self.norm, self.tolerance = self.numbers[NORM].real, self.numbers[TOLERANCE].real
        self.columns = Columns(
            xp.zeros((3, norm.shape[0]), bool),
            xp.zeros((3, norm.shape[0]), np.int64),
            xp.zeros((self._every, norm.shape[0])),
        )
        flags, counts, self._history = self.columns
        self.active, self.moving, self.converged = flags[ACTIVE], flags[MOVING], flags[REACHED]
        self.steps, self.code = counts[STEPS], counts[CODE]
        # Where the norm of b overflows, so does the tolerance, and nothing is an answer.
        self.converged[...] = (norm <= tolerance) & xp.isfinite(norm)
        self.active[...] = ~self.converged & xp.isfinite(norm)

    def prepare(
        self, updates: list, dots: list, active: Any = None, step: str | None = None
    ) -> Callable[[], None]:
        """Return a pass (`engines.reference.vector.prepare`) over the numbers of the columns.

        ``step`` is the name of a step of this solver.
        """
        after = None if step is None else Step(f"{self.system.function}.{step}", self.columns)
        return self.system.prepare(self.numbers, updates, dots, active, after)

    def stop(self, where: Any, code: int = 0) -> None:
        """Stop columns that cannot make the iteration, which does not count."""
        where = where & self.active
        self.code[where] = code
        self.active &= ~where

    def advance(self, norm: Any) -> None:
        """Count an iteration of the active columns and stop those that are done."""
        self.steps += self.active
        xp = self.system.xp
        self.norm[...] = xp.where(self.active, norm, self.norm)
        self.converged |= (self.norm <= self.tolerance) & self.active
        self.active &= ~self.converged & xp.isfinite(self.norm)

    def run(self, iteration: Callable[[], None], solution: Callable[[], Any]) -> None:
        """Iterate until every column has stopped or ``maxiter`` is reached.

        Only here does the host wait for a device: once in ``check_every`` iterations, with a
        callback in each.
        """
        limits = self.limits
        self.tell(to_host(self.norm)[None])
        iterate, done, seen = self.system.repeated(iteration), 0, 0
        # On the host, of one column, it takes a quarter of the time of `any`.
        while done < limits.maxiter and np.count_nonzero(to_host(self.active)):
            count = min(self._every, limits.maxiter - done)
            if limits.callback is not None:
                count = 1
            iterate(count)
            if limits.residuals is not None or limits.callback is not None:
                made = int(to_host(self.steps).max())
                slots = np.arange(seen, made) % self._every
                if limits.residuals is not None:
                    self.tell(to_host(self._history)[slots])
                if limits.callback is not None and made > seen:
                    limits.callback(self.system.shaped(solution()).copy())
                seen = made
            done += count

    def tell(self, norms: np.ndarray) -> None:
        """Append norms (iterations, r) to the caller's list."""
        if self.limits.residuals is not None:
            flat = len(self.system.shape) == 1
            self.limits.residuals.extend(norms[:, 0].tolist() if flat else norms.copy())

    def info(self) -> Any:
        """Return SciPy's info, for several columns one for each, and say a line if asked to."""
        steps, converged = to_host(self.steps), to_host(self.converged)
        info = np.where(converged, 0, np.where(to_host(self.code), to_host(self.code), steps))
        info = np.where(~converged & (info == 0), -1, info)
        if self.limits.verbose:
            print(self._line(steps, converged))
        return int(info[0]) if len(self.system.shape) == 1 else info

    def _line(self, steps: np.ndarray, converged: np.ndarray) -> str:
        name, norm = self.system.function, to_host(self.norm)
        if not norm.size:
            return f"{name}: nothing to solve"
        low, high = int(steps.min()), int(steps.max())
        made = f"{high}" if low == high else f"{low} to {high}"
        worst = int(np.argmax(norm))
        wanted = float(to_host(self.tolerance)[worst])
        line = f"{name}: {made} iterations, residual {norm[worst]:.2e} (tolerance {wanted:.2e})"
        if norm.size == 1:
            return f"{line}, {'converged' if converged[0] else 'not converged'}"
        return f"{line}, {int(converged.sum())} of {norm.size} columns converged"
