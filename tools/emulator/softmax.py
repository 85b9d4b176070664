"""Softmax and its gradient through their CUDA host, over emulated kernels and NumPy arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from sparsegpu.engines.cuda import softmax

from .host import emulated


@contextmanager
def emulated_softmax(directory: Path, forward: str = "bsr_softmax_wide") -> Iterator[Counter]:
    """Compute softmax of NumPy arrays by emulated kernels in the block of this context."""
    names = ("bsr_softmax", "bsr_softmax_backward")
    operations = {"softmax": {name: getattr(softmax, name) for name in names}}
    with (
        patch.object(softmax, "FORWARD", forward),
        emulated(directory, (softmax,), operations) as launched,
    ):
        yield launched
