"""Sparse times sparse through the hosts of its CUDA paths, over emulated kernels."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

from sparsegpu.engines.cuda import _spgemm_plan, spgemm
from sparsegpu.engines.cuda.paths import SPGEMM, _dispatch, _spgemm, _tuned

from .host import emulated


def emulated_spgemm(directory: Path) -> AbstractContextManager[Counter]:
    """Multiply block-sparse NumPy arrays by emulated kernels in the block of this context."""
    operations = {"spgemm": {"plan": spgemm.plan, "spgemm": spgemm.spgemm}}
    modules = *SPGEMM, _dispatch, _spgemm, _tuned, _spgemm_plan, spgemm
    return emulated(directory, modules, operations)
