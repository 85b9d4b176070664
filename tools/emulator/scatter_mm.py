"""`scatter_mm` through its CUDA host, over emulated kernels and NumPy arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from sparsegpu.engines.cuda import _epilogue_args, scatter_mm

from .host import emulated

_NAMES = ("scatter_mm", "bsr_strided_mm", "bsr_strided_mm_compressed", "clear")


@contextmanager
def emulated_scatter_mm(directory: Path, halves: str = "scatter_mm_sm80") -> Iterator[Counter]:
    """Compute `scatter_mm` of NumPy arrays by emulated kernels in the block of this context."""
    operations = {"scatter_mm": {name: getattr(scatter_mm, name) for name in _NAMES}}
    with (
        patch.object(scatter_mm, "HALVES", halves),
        emulated(directory, (scatter_mm, _epilogue_args), operations) as launched,
    ):
        yield launched
