"""Attention through the hosts of its CUDA paths, over emulated kernels and NumPy arrays."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

from sparsegpu.engines.cuda import attention
from sparsegpu.engines.cuda.paths import (
    _attention,
    _attention_tiles,
    _dispatch,
    _matrix_maps,
    bsr_attention_simt,
    bsr_attention_sm80,
    bsr_attention_sm90,
)

from .host import emulated

_MODULES = (
    *(bsr_attention_simt, bsr_attention_sm80, bsr_attention_sm90),
    *(_attention, _attention_tiles, _matrix_maps, _dispatch, attention),
)


def emulated_attention(directory: Path) -> AbstractContextManager[Counter]:
    """Compute attention of NumPy arrays by emulated kernels in the block of this context."""
    return emulated(directory, _MODULES, {"attention": {"attention": attention.attention}})
