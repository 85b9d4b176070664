"""What is said of a kernel: the rows of `kernels` and of `support`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .runtime.architectures import PORTABLE

Defines = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KernelSource:
    """What one ``.cu`` file serves.

    Attributes
    ----------
    source : str
        Stem of the file and name of its entry point.
    op : str or tuple of str
        Of `OPERATIONS`; none where a kernel only prepares what others read.
    dtypes : tuple of str
        Operand dtypes, by name.
    archs : tuple of str
        Architectures: "90a" is that device only, a plain number includes every later device.
    variants : tuple of mappings, or a function that returns one
        ``-D`` sets that the compile matrix builds: representative ones, to keep it to minutes.
    path : str
        Of a product: its name in ``config``.
    tensor_core : bool
        Tensor-core kernels must not spill registers to local memory.
    fits : function of a ``-D`` set and bytes of shared memory
        Whether these suffice for it; for others the compile matrix does not build it.
    """

    source: str
    op: str | tuple[str, ...]
    dtypes: tuple[str, ...]
    archs: tuple[str, ...] = PORTABLE
    variants: tuple[Defines, ...] | Callable[[], tuple[Defines, ...]] = ({},)
    path: str = "simt"
    tensor_core: bool = False
    fits: Callable[[Defines, int], bool] = lambda defines, shared_memory: True

    @property
    def ops(self) -> tuple[str, ...]:
        """The operations served."""
        return (self.op,) if isinstance(self.op, str) else self.op


FLOATS = ("float16", "bfloat16", "float32", "float64")
HALVES = ("float16", "bfloat16")


def each(name: str, values: tuple[Any, ...], **common: str) -> tuple[Defines, ...]:
    """Return one ``-D`` set for each value of ``name``."""
    return tuple({name: value, **common} for value in values)
