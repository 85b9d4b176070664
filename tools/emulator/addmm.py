"""BSR times a few columns through the hosts of its CUDA path, over emulated kernels."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

from sparsegpu.engines.cuda import addmm
from sparsegpu.engines.cuda.paths import _dispatch, _few_columns, _product, _tuned, bsr_addmm_vector

from .host import emulated


def emulated_few_columns(directory: Path) -> AbstractContextManager[Counter]:
    """Multiply block-sparse NumPy arrays by emulated kernels in the block of this context.

    Products ask for the path ``vector`` by their ``config``.
    """
    modules = addmm, _dispatch, _few_columns, _product, _tuned, bsr_addmm_vector
    operations = {"addmm": {"bsr_addmm": addmm.bsr_addmm}}
    return emulated(directory, modules, operations)
