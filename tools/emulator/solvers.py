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

from sparsegpu.engines.cuda import vector
from sparsegpu.linalg import _system

from .host import DeviceArray, device_array, emulated


def _prepare(
    scalars: Any, updates: Any, dots: Any, active: Any = None, step: Any = None
) -> Callable[[], None]:
    """Do what `vector.prepare` does, of arrays that say their address."""
    known: dict[int, DeviceArray] = {}

    def on_device(array: Any) -> Any:
        return None if array is None else known.setdefault(id(array), array.view(DeviceArray))

    if step is not None:
        step = step._replace(columns=type(step.columns)(*map(on_device, step.columns)))
    return vector.prepare(
        on_device(scalars),
        [(on_device(to), [(row, on_device(v)) for row, v in terms]) for to, terms in updates],
        [(row, on_device(u), on_device(v)) for row, u, v in dots],
        on_device(active),
        step,
    )


@contextmanager
def emulated_solvers(directory: Path) -> Iterator[Counter]:
    """Make the passes of solvers by emulated kernels in the block of this context.

    Products are those of the CPU. Yields launches by the source of the kernel.
    """
    engine = SimpleNamespace(prepare=_prepare, repeated=lambda iteration: iteration)

    def zeros(nbytes: int) -> DeviceArray:
        return device_array(nbytes, np.uint8, fill=0)

    with (
        emulated(directory, [vector], {}, _zeros=zeros) as launched,
        patch.object(_system, "engine_module", lambda *_: engine),
    ):
        yield launched
