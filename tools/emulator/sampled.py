"""Sampled products through the hosts of their CUDA paths, over emulated kernels."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

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

from .host import aligned_lines, emulated

_MODULES = (
    *(bsr_sampled_addmm_f32, bsr_sampled_addmm_f64, bsr_sampled_addmm_simt),
    *(bsr_sampled_addmm_sm80, bsr_sampled_addmm_sm90),
    *(_matrix_maps, _sampled, _sampled_full_precision, _tuned, _dispatch, sampled_addmm),
)


def emulated_sampled_addmm(directory: Path) -> AbstractContextManager[Counter]:
    """Compute sampled products of NumPy arrays by emulated kernels in the block of this context."""
    operations = {"sampled_addmm": {"sampled_addmm": sampled_addmm.sampled_addmm}}
    return emulated(directory, _MODULES, operations, aligned_lines=aligned_lines)
