"""Linear combinations of vectors, dot products and the steps of solvers: one launch a pass.

Nothing here waits for the device. A sum has the same order in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ..._math import ceil_div, power_of_two_from
from .._solver_steps import Step
from ._solver_kernels import COLUMNS, THREADS, VECTORS, defines_of
from .runtime.capture import GraphLaunch
from .runtime.device import multiprocessors
from .runtime.launch import Launch, kernel, recording, submit
from .runtime.structs import kernel_struct

#: Thread blocks a multiprocessor, at most: as many as run there at once.
_RESIDENT = 8

#: Launches of a graph of iterations: from about so many on, starting it costs little beside them.
#: (Conjugate gradients with four launches of 4 us each on an H200, graphs of 1, 2, 4, 8 iterations:
#: 27, 20, 17 and 17 us an iteration.)
_IN_A_GRAPH = 16


class Grid(NamedTuple):
    """How a pass over vectors (n, r) is divided.

    Attributes
    ----------
    columns : int
        Of a thread block.
    rows : int
        Consecutive rows that a thread loads at once.
    tiles, blocks : int
        Of columns; thread blocks of each.
    """

    columns: int
    rows: int
    tiles: int
    blocks: int

    @classmethod
    def of(cls, n: int, r: int, dtype: np.dtype, addresses: Sequence[int]) -> Grid:
        """Return the grid for vectors at these addresses."""
        columns = min(power_of_two_from(r), COLUMNS)
        aligned = r == 1 and all(address % 16 == 0 for address in addresses)
        rows = 16 // dtype.itemsize if aligned else 1
        tiles = ceil_div(r, columns)
        most = ceil_div(_RESIDENT * multiprocessors(), tiles)
        return cls(columns, rows, tiles, min(max(ceil_div(n, THREADS // columns * rows), 1), most))

    def memory(self, dots: int, dtype: np.dtype) -> tuple[Any, dict[str, int]]:
        """Return memory for so many sums, and what the kernel's argument says of it."""
        size = dots * self.tiles * self.blocks * self.columns * dtype.itemsize
        memory = _zeros(size + 4 * self.tiles)
        return memory, {"partials": memory.data.ptr, "done": memory.data.ptr + size}

    def launch(self, source: str, defines: Mapping[str, Any], argument: Any) -> Launch:
        """Return the launch of a pass."""
        return Launch(
            kernel(source, **defines), (self.tiles * self.blocks,), (THREADS,), (argument,)
        )


def state_of(step: Step | None) -> dict[str, int]:
    """Return what a kernel's argument says of the columns of a step."""
    if step is None:
        return {"flags": 0, "counts": 0, "history": 0, "every": 1}
    state = {name: array.data.ptr for name, array in step.columns._asdict().items()}
    return state | {"every": len(step.columns.history)}


def prepare(
    scalars: Any,
    updates: Sequence[tuple[Any, Sequence[tuple[int | None, Any]]]],
    dots: Sequence[tuple[int, Any, Any]],
    active: Any = None,
    step: Step | None = None,
) -> Callable[[], None]:
    """Return a pass over vectors: linear combinations, then dot products of what they became.

    As `engines.reference.vector.prepare` says.
    """
    vectors: list[Any] = []

    def number(vector: Any) -> int:
        for i, known in enumerate(vectors):
            if known is vector:
                return i
        vectors.append(vector)
        return len(vectors) - 1

    terms = [
        (number(target), number(vector), -1 if row is None else row, t == len(of_target) - 1)
        for target, of_target in updates
        for t, (row, vector) in enumerate(of_target)
    ]
    pairs = [(row, number(u), number(v)) for row, u, v in dots]
    n, r = vectors[0].shape
    if not r:
        return lambda: None
    addresses = [vector.data.ptr for vector in vectors]
    grid = Grid.of(n, r, vectors[0].dtype, addresses)
    memory, sums = grid.memory(len(pairs), scalars.dtype)
    addresses += [0] * (VECTORS - len(addresses))
    argument = kernel_struct("solver_pass", "SolverPass")(
        **{f"v{i}": address for i, address in enumerate(addresses)},
        numbers=scalars.data.ptr,
        active=0 if active is None else active.data.ptr,
        rows=n,
        columns=r,
        tiles=grid.tiles,
        blocks=grid.blocks,
        **sums,
        **state_of(step),
    )
    defines = defines_of(
        vectors[0].dtype,
        terms,
        pairs,
        None if step is None else step.name,
        grid.columns,
        grid.rows,
    )
    launch = grid.launch("solver_pass", defines, argument)
    # What the launch holds are addresses.
    alive = vectors, scalars, active, step, memory

    def run(_: Any = alive) -> None:
        submit(launch)

    return run


def gram(left: Any, right: Any) -> Any:
    """Return ``left^H @ right`` of tall matrices (n, p) and (n, q), by cuBLAS."""
    return left.conj().T @ right


def combine(tall: Any, coefficients: Any, out: Any) -> None:
    """Write ``tall @ coefficients`` to out, of matrices (n, p) and (p, q), by cuBLAS."""
    import cupy

    cupy.matmul(tall, coefficients, out=out)


def repeated(iteration: Callable[[], None]) -> Callable[..., None]:
    """Return ``run(count=1)``, which makes an iteration so many times.

    The very first is made as it is, with what is made only once (plans, compiled kernels). Those
    that follow are CUDA graphs, of several iterations where each has few launches.
    """
    graphs: dict[int, GraphLaunch] = {}
    most = 0  # iterations of a graph

    def run(count: int = 1) -> None:
        nonlocal most
        if count and not most:
            launches: list[Any] = []
            with recording(lambda works, whole, setup: launches.extend(() if setup else works)):
                iteration()
            most, count = max(_IN_A_GRAPH // max(len(launches), 1), 1), count - 1
        for size in (most, 1):
            while count >= size > 0:
                if size not in graphs:
                    graphs[size] = _captured(iteration, size)
                submit(graphs[size])
                count -= size

    return run


def _captured(iteration: Callable[[], None], times: int) -> GraphLaunch:
    """Return a CUDA graph of what an iteration submits, so many times.

    It is captured on a stream of its own, as the default stream cannot be.
    """
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            for _ in range(times):
                iteration()
        except BaseException:
            with suppress(RuntimeError):  # what CUDA says of a capture that an error has ended
                stream.end_capture()
            raise
        return GraphLaunch(stream.end_capture())


def _zeros(nbytes: int) -> Any:
    import cupy

    return cupy.zeros(nbytes, np.uint8)
