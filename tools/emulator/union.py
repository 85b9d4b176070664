"""Sums over the union of two patterns through their CUDA host, over emulated kernels."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

from sparsegpu.engines.cuda import _spgemm_plan, union

from .host import emulated


def emulated_union(directory: Path) -> AbstractContextManager[Counter]:
    """Add block-sparse NumPy arrays by emulated kernels in the block of this context."""
    operations = {"union": {"combine": union.combine, "side_by_side": union.side_by_side}}
    return emulated(directory, [_spgemm_plan, union], operations)
