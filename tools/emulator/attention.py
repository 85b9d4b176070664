"""Attention and its gradients through the hosts of the CUDA engine, over emulated kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from sparsegpu.engines.cuda import attention, attention_backward
from sparsegpu.engines.cuda.paths import (
    _attention,
    _attention_backward,
    _attention_tiles,
    _dispatch,
    _matrix_maps,
    _tuned,
    bsr_attention_backward_simt,
    bsr_attention_backward_sm80,
    bsr_attention_backward_sm90,
    bsr_attention_decode,
    bsr_attention_f64,
    bsr_attention_fma,
    bsr_attention_simt,
    bsr_attention_sm80,
    bsr_attention_sm90,
)
from sparsegpu.ops import _attention as operands

from .host import emulated

_MODULES = (
    *(bsr_attention_decode, bsr_attention_f64, bsr_attention_fma, bsr_attention_simt),
    *(bsr_attention_sm80, bsr_attention_sm90),
    *(bsr_attention_backward_simt, bsr_attention_backward_sm80, bsr_attention_backward_sm90),
    _attention_backward,
    *(_attention, _attention_tiles, _matrix_maps, _dispatch, _tuned),
    *(attention, attention_backward),
)
_OPERATIONS = {
    "attention": {"attention": attention.attention},
    "attention_backward": {"attention_backward": attention_backward.attention_backward},
}


@contextmanager
def emulated_attention(directory: Path) -> Iterator[Counter]:
    """Compute attention of NumPy arrays by emulated kernels in the block of this context."""
    transposed = {"transpose_pattern": lambda pattern: pattern.transposed()}
    with (
        patch.object(operands, "reads_bits", lambda xp: True),
        emulated(directory, _MODULES, _OPERATIONS, **transposed) as launched,
    ):
        yield launched
