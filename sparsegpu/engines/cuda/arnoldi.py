"""A basis of orthonormal vectors that grows by one at a time: a launch for a group of its vectors.

Nothing here waits for the device. A sum has the same order in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._solver_steps import Step
from .._solver_steps.gmres import BEFORE, GROUP, SCALE, SQUARE, passes
from ._solver_kernels import basis_defines
from .runtime.launch import Launch, submit
from .runtime.structs import kernel_struct
from .vector import Grid, prepare, state_of


def extend_basis(
    scalars: Any, basis: Any, count: int, w: Any, newest: Any, active: Any, step: Step
) -> Callable[[], None]:
    """Return a pass that appends the part of w that is orthogonal to the first ``count`` vectors.

    As `engines.reference.arnoldi.extend_basis` says.
    """
    if not w.shape[1]:
        return lambda: None
    grid, known = _described(scalars, basis, w, active)
    memory, sums = grid.memory(GROUP + 1, scalars.dtype)
    launches = []
    for taken, first, last in passes(count):
        final = first == count
        square = SQUARE if final else BEFORE if first == 0 else -1
        launches.append(
            _launch(
                grid, w.dtype, step if final else None, False, **known, **sums,
                taken=taken, first=first, last=last, square=square,
            )
        )  # fmt: skip
    unit = prepare(scalars, [(v, [(SCALE, w)]) for v in (basis[count], newest)], [], active)
    # What the launches hold are addresses.
    alive = scalars, basis, w, active, step, memory

    def run(_: Any = alive) -> None:
        for launch in launches:
            submit(launch)
        unit()

    return run


def add_combination(
    scalars: Any, basis: Any, count: int, x: Any, active: Any
) -> Callable[[], None]:
    """Return a pass that adds combinations of the vectors to x.

    As `engines.reference.arnoldi.add_combination` says.
    """
    if not x.shape[1]:
        return lambda: None
    grid, known = _described(scalars, basis, x, active)
    launches = [
        _launch(
            grid, x.dtype, None, True, **known, partials=0, done=0,
            taken=taken, first=first, last=first, square=-1,
        )
        for taken, first, _ in passes(count)[1:]
    ]  # fmt: skip
    alive = scalars, basis, x, active

    def run(_: Any = alive) -> None:
        for launch in launches:
            submit(launch)

    return run


def _described(scalars: Any, basis: Any, w: Any, active: Any) -> tuple[Grid, dict[str, int]]:
    """Return the grid, and what all passes over these arrays have in common."""
    (n, r), stride = w.shape, basis.strides[0]
    # Every vector of the basis is aligned if the first one is and the distance is.
    grid = Grid.of(n, r, w.dtype, [basis.data.ptr, stride, w.data.ptr])
    return grid, {
        "basis": basis.data.ptr,
        "stride": stride // w.dtype.itemsize,
        "w": w.data.ptr,
        "numbers": scalars.data.ptr,
        "active": active.data.ptr,
        "rows": n,
        "columns": r,
        "tiles": grid.tiles,
        "blocks": grid.blocks,
    }


def _launch(grid: Grid, dtype: Any, step: Step | None, adds: bool, **argument: int) -> Launch:
    defines = basis_defines(dtype, None if step is None else step.name, adds, *grid[:2])
    struct = kernel_struct("solver_basis", "SolverBasis")
    return grid.launch("solver_basis", defines, struct(**argument, **state_of(step)))
