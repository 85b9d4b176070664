"""Softmax and its gradient through their CUDA host, over emulated kernels and NumPy arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparsegpu.engines.cuda import softmax

from .host import emulated


@contextmanager
def emulated_softmax(directory: Path) -> Iterator[Counter]:
    """Compute softmax of NumPy arrays by emulated kernels in the block of this context."""
    names = ("bsr_softmax", "bsr_softmax_backward")
    operations = {"softmax": {name: getattr(softmax, name) for name in names}}
    with emulated(directory, (softmax,), operations) as launched:
        yield launched
