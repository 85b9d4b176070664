"""Which columns of a system are done, and the loop that looks at them now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._system import Limits, System, to_host

#: Iterations between two looks at most: so many norms are kept.
_MOST = 1 << 10


class Progress:
    """How far each column is; all of it is kept where the vectors are.

    A column stops by itself, in the iteration in which its residual norm is within ``tolerance``:
    from then on it is not ``active`` and no iteration changes it. So it does not matter how often
    the host looks.

    Attributes
    ----------
    active, converged : bool (r,)
    norm, tolerance : float64 (r,), the residual norm and what it has to reach
    steps : int64 (r,), iterations made
    code : int64 (r,), what a solver broke down of (negative), 0 else
    """

    def __init__(self, system: System, limits: Limits, norm: Any, tolerance: Any):
        xp = system.xp
        self.system, self.limits = system, limits
        self.norm, self.tolerance = norm, tolerance
        self.converged = norm <= tolerance
        self.active = ~self.converged & xp.isfinite(norm)
        self.steps = xp.zeros(norm.shape, np.int64)
        self.code = xp.zeros(norm.shape, np.int64)
        self._every = min(limits.check_every, limits.maxiter, _MOST)
        self._history = xp.empty((self._every, *norm.shape))

    def stop(self, where: Any, code: int = 0) -> None:
        """Stop columns that cannot make the iteration, which does not count."""
        xp = self.system.xp
        where = where & self.active
        self.code = xp.where(where, code, self.code)
        self.active = self.active & ~where

    def advance(self, norm: Any, converged: Any = None) -> None:
        """Count an iteration of the active columns and stop those that are done."""
        xp = self.system.xp
        self.steps = self.steps + self.active
        self.norm = xp.where(self.active, norm, self.norm)
        reached = self.norm <= self.tolerance if converged is None else converged
        self.converged = self.converged | (reached & self.active)
        self.active = self.active & ~self.converged & xp.isfinite(self.norm)

    def run(self, step: Callable[[], None], solution: Callable[[], Any]) -> None:
        """Iterate until every column has stopped or ``maxiter`` is reached.

        Only here does the host wait: once in ``check_every`` iterations, with a callback in each.
        """
        limits = self.limits
        self.tell(to_host(self.norm)[None])
        done = 0
        while done < limits.maxiter and to_host(self.active).any():
            count = min(self._every, limits.maxiter - done)
            if limits.callback is not None:
                count = 1
            for slot in range(count):
                step()
                self._history[slot] = self.norm
            made = int(to_host(self.steps).max()) - done
            self.tell(to_host(self._history[:made]))
            if limits.callback is not None and made:
                limits.callback(self.system.shaped(solution()).copy())
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
