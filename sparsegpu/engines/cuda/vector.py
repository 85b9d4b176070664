"""Linear combinations of vectors, dot products and the steps of solvers: one launch a pass.

Nothing here waits for the device. A sum has the same order in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..._math import ceil_div
from .._solver_steps import Step
from ._solver_kernels import COLUMNS, THREADS, VECTORS, defines_of
from .runtime.launch import Launch, kernel, multiprocessors, submit
from .runtime.structs import kernel_struct

#: Thread blocks a multiprocessor, at most: as many as run there at once.
_RESIDENT = 8


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
    columns = min(1 << (r - 1).bit_length(), COLUMNS)
    addresses = [vector.data.ptr for vector in vectors]
    aligned = r == 1 and all(address % 16 == 0 for address in addresses)
    rows = 16 // vectors[0].dtype.itemsize if aligned else 1
    tiles = ceil_div(r, columns)
    most = ceil_div(_RESIDENT * multiprocessors(), tiles)
    blocks = min(max(ceil_div(n, THREADS // columns * rows), 1), most)
    size = len(pairs) * tiles * blocks * columns * scalars.dtype.itemsize
    memory = _zeros(size + 4 * tiles)
    state = {"flags": 0, "counts": 0, "history": 0, "every": 1}
    if step is not None:
        state = {name: array.data.ptr for name, array in step.columns._asdict().items()}
        state["every"] = len(step.columns.history)
    addresses += [0] * (VECTORS - len(addresses))
    argument = kernel_struct("solver_pass", "SolverPass")(
        **{f"v{i}": address for i, address in enumerate(addresses)},
        numbers=scalars.data.ptr,
        partials=memory.data.ptr,
        done=memory.data.ptr + size,
        active=0 if active is None else active.data.ptr,
        rows=n,
        columns=r,
        tiles=tiles,
        blocks=blocks,
        **state,
    )
    defines = defines_of(
        vectors[0].dtype, terms, pairs, None if step is None else step.name, columns, rows
    )
    launch = Launch(kernel("solver_pass", **defines), (tiles * blocks,), (THREADS,), (argument,))
    # What the launch holds are addresses.
    alive = vectors, scalars, active, step, memory

    def run(_: Any = alive) -> None:
        submit(launch)

    return run


def repeated(iteration: Callable[[], None]) -> Callable[[], None]:
    """Return an iteration that is made again and again: the first time as it is, then as a graph.

    The first time makes what is made once (plans, compiled kernels); the second is captured.
    """
    launch: Callable[[], None] | None = None
    times = 0

    def run() -> None:
        nonlocal launch, times
        times += 1
        if times == 1:
            iteration()
            return
        if launch is None:
            launch = _captured(iteration)
        launch()

    return run


def _captured(iteration: Callable[[], None]) -> Callable[[], None]:
    """Return the launch of a CUDA graph of what is submitted, on the stream that is current then.

    It is captured on a stream of its own, as the default stream cannot be.
    """
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            iteration()
        finally:
            graph = stream.end_capture()
    return graph.launch


def _zeros(nbytes: int) -> Any:
    import cupy

    return cupy.zeros(nbytes, np.uint8)
