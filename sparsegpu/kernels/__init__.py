"""A user's own CUDA kernel as an operation, with what it reads and writes found in its PTX."""

from __future__ import annotations

from .._ptx.access import Access, analyse
from .config import Config, Out, Spec
from .construct import wrap
from .guard import AccessError, checked
from .kernel import Kernel
from .tensor_map import TensorMap

__all__ = [
    "Access",
    "AccessError",
    "Config",
    "Kernel",
    "Out",
    "Spec",
    "TensorMap",
    "analyse",
    "checked",
    "wrap",
]


def __dir__() -> list[str]:
    return __all__
