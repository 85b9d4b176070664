"""Makers of block masks through their CUDA host, over emulated kernels."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

from sparsegpu.engines.cuda import block_masks

from .host import emulated


def emulated_block_masks(directory: Path) -> AbstractContextManager[Counter]:
    """Make masks of NumPy arrays by emulated kernels in the block of this context."""
    names = "interval_mask", "top_k"
    operations = {"block_masks": {name: getattr(block_masks, name) for name in names}}
    return emulated(directory, (block_masks,), operations)
