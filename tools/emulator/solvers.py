"""Solvers through the CUDA engine's passes over emulated kernels and NumPy arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from sparsegpu.engines._solver_steps import Columns, Step
from sparsegpu.engines.cuda import arnoldi, vector
from sparsegpu.linalg import _gmres, _system

from .host import DeviceArray, device_array, emulated


def _on_device() -> Callable[[Any], Any]:
    """Return what gives an array that says its address; for the same array the same one."""
    known: dict[int, DeviceArray] = {}

    def on_device(value: Any) -> Any:
        if isinstance(value, Step):
            return value._replace(columns=Columns(*map(on_device, value.columns)))
        if not isinstance(value, np.ndarray):
            return value
        return known.setdefault(id(value), value.view(DeviceArray))

    return on_device


def _prepare(scalars: Any, updates: Any, dots: Any, *rest: Any) -> Callable[[], None]:
    """Do what `vector.prepare` does, of NumPy arrays."""
    on_device = _on_device()
    return vector.prepare(
        on_device(scalars),
        [(on_device(to), [(row, on_device(v)) for row, v in terms]) for to, terms in updates],
        [(row, on_device(u), on_device(v)) for row, u, v in dots],
        *map(on_device, rest),
    )


def _over_arrays(function: Callable) -> Callable:
    """Return a function of `arnoldi`, of NumPy arrays."""
    return lambda *arguments: function(*map(_on_device(), arguments))


@contextmanager
def emulated_solvers(directory: Path) -> Iterator[Counter]:
    """Make the passes of solvers by emulated kernels in the block of this context.

    Products are those of the CPU. Yields launches by the source of the kernel.
    """
    engine = SimpleNamespace(
        prepare=_prepare,
        repeated=lambda iteration: iteration,
        extend_basis=_over_arrays(arnoldi.extend_basis),
        add_combination=_over_arrays(arnoldi.add_combination),
    )

    def zeros(nbytes: int) -> DeviceArray:
        return device_array(nbytes, np.uint8, fill=0)

    with (
        emulated(directory, [vector, arnoldi], {}, _zeros=zeros) as launched,
        patch.object(_system, "engine_module", lambda *_: engine),
        patch.object(_gmres, "engine_module", lambda *_: engine),
    ):
        yield launched
