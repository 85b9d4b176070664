"""What solvers compute of numbers after a pass over vectors, column by column.

A step reads and writes column ``j`` of a table of numbers ``n`` and returns what becomes of the
column. This is the definition, which the reference engine calls and the CPU engine compiles. The
CUDA engine has a twin of each in ``cuda_src/solver_pass``, with rows in the same order; there the
last thread block of a pass makes the step, so that no number leaves the device.

A module has the steps of one solver, in `STEPS`: by name the function, and whether an iteration is
over with it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

#: What becomes of a column: it goes on; the iteration is over for it; and it is done, too; or it
#: stops all the same. Anything else is the code of what it stops of, in an iteration that does not
#: count.
GOES_ON, ITERATED, CONVERGED, EXHAUSTED = 1, 2, 3, 4

#: Rows of every table: the residual norm, and what it has to come down to.
NORM, TOLERANCE = range(2)

#: Rows of `Columns.flags`: what is not done yet; what the last iteration changed; what converged.
ACTIVE, MOVING, REACHED = range(3)
#: Rows of `Columns.counts`: iterations of the column, the code it stopped of, iterations of all.
STEPS, CODE, ROUNDS = range(3)


class Columns(NamedTuple):
    """How far each column is.

    Attributes
    ----------
    flags : bool (3, r)
    counts : int64 (3, r)
    history : float64 (every, r)
        Residual norms: iteration i, from 0, writes row ``i % every``.
    """

    flags: Any
    counts: Any
    history: Any


class Step(NamedTuple):
    """A step after a pass, and the columns that it is made for.

    Attributes
    ----------
    name : str
        Solver and step: ``"cg.length"``.
    columns : Columns
    """

    name: str
    columns: Columns


def after_pass(name: str, compiled: Callable[[Callable], Callable] = lambda f: f) -> Callable:
    """Return what a pass ends with: ``after(n, flags, counts, history)``, of all columns.

    ``compiled`` decorates it and the step.
    """
    solver, _, of_solver = name.partition(".")
    function, last = import_module(f".{solver}", __name__).STEPS[of_solver]
    step = compiled(function)

    def after(n, flags, counts, history):
        for j in range(n.shape[1]):
            if flags[ACTIVE, j]:
                became = step(n, j)
                if became != GOES_ON:
                    moved = became in (ITERATED, CONVERGED, EXHAUSTED)
                    flags[MOVING, j] = moved
                    flags[REACHED, j] = became == CONVERGED
                    counts[STEPS, j] += moved
                    counts[CODE, j] = 0 if moved else became
                    flags[ACTIVE, j] = became == ITERATED and np.isfinite(n[NORM, j])
            elif last:
                flags[MOVING, j] = False
            if last:
                history[counts[ROUNDS, j] % len(history), j] = n[NORM, j].real
                counts[ROUNDS, j] += 1

    after.__qualname__ = f"after_pass.{name}"  # by which compiled code is kept
    return compiled(after)
