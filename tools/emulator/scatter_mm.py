"""`scatter_mm` and its index lists through their CUDA hosts, over emulated kernels."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

from sparsegpu.engines.cuda import _epilogue_args, scatter_indices, scatter_mm
from sparsegpu.engines.cuda.paths import SCATTER, _dispatch, _matrix_maps, _scatter, _tuned

from .host import emulated

_NAMES = ("scatter_mm", "bsr_strided_mm", "bsr_strided_mm_compressed", "clear")


def emulated_scatter_mm(directory: Path) -> AbstractContextManager[Counter]:
    """Compute `scatter_mm` of NumPy arrays by emulated kernels in the block of this context."""
    operations = {"scatter_mm": {name: getattr(scatter_mm, name) for name in _NAMES}}
    modules = *SCATTER, _dispatch, _matrix_maps, _scatter, _tuned, _epilogue_args, scatter_mm
    return emulated(directory, modules, operations)


def emulated_scatter_indices(directory: Path) -> AbstractContextManager[Counter]:
    """Make the index lists of patterns of NumPy arrays in the block of this context."""
    names = "filled_rows", "index_lists"
    operations = {"scatter_indices": {name: getattr(scatter_indices, name) for name in names}}
    return emulated(directory, (scatter_indices,), operations)
