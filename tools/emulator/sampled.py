"""Sampled products through the hosts of their CUDA paths, over emulated kernels."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from sparsegpu.engines.cuda import sampled_addmm
from sparsegpu.engines.cuda.paths import (
    _dispatch,
    _matrix_maps,
    _sampled,
    _sampled_full_precision,
    _tuned,
    bsr_sampled_addmm_f32,
    bsr_sampled_addmm_f64,
    bsr_sampled_addmm_simt,
    bsr_sampled_addmm_sm80,
    bsr_sampled_addmm_sm90,
)

from .host import device_array, emulated

_MODULES = (
    *(bsr_sampled_addmm_f32, bsr_sampled_addmm_f64, bsr_sampled_addmm_simt),
    *(bsr_sampled_addmm_sm80, bsr_sampled_addmm_sm90),
    *(_matrix_maps, _sampled, _sampled_full_precision, _tuned, _dispatch, sampled_addmm),
)
_ALIGNMENT = 128  # bytes, of a line


def _aligned_lines(dense: Any, by_column: bool) -> tuple[Any, Any]:
    """Copy as `paths._dense_lines` does; what lies behind a line is poisoned."""
    lines = dense.swapaxes(-1, -2) if by_column else dense
    pitch = -(-lines.shape[-1] * lines.itemsize // _ALIGNMENT) * _ALIGNMENT // lines.itemsize
    copy = device_array((*lines.shape[:-1], pitch), lines.dtype)[..., : lines.shape[-1]]

    def work() -> None:
        copy[...] = np.asarray(lines)

    return copy.swapaxes(-1, -2) if by_column else copy, work


def emulated_sampled_addmm(directory: Path) -> AbstractContextManager[Counter]:
    """Compute sampled products of NumPy arrays by emulated kernels in the block of this context."""
    operations = {"sampled_addmm": {"sampled_addmm": sampled_addmm.sampled_addmm}}
    return emulated(directory, _MODULES, operations, aligned_lines=_aligned_lines)
