"""Attention and its gradients through the hosts of the CUDA engine, over emulated kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sparsegpu.engines.cuda import attention, attention_backward
from sparsegpu.engines.cuda._arena import Arrays
from sparsegpu.engines.cuda._schedule import RowGroups
from sparsegpu.engines.cuda.paths import (
    _attention,
    _attention_backward,
    _attention_tiles,
    _dispatch,
    _matrix_maps,
    _split_kv,
    _tile_order,
    _tuned,
    bsr_attention_backward_fma,
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
from sparsegpu.engines.cuda.paths._split_k import CutGroups, cut_row_groups
from sparsegpu.ops import _attention as operands

from .host import DeviceArray, emulated

_MODULES = (
    *(bsr_attention_decode, bsr_attention_f64, bsr_attention_fma, bsr_attention_simt),
    *(bsr_attention_sm80, bsr_attention_sm90),
    *(bsr_attention_backward_fma, bsr_attention_backward_simt),
    *(bsr_attention_backward_sm80, bsr_attention_backward_sm90),
    _attention_backward,
    *(_attention, _attention_tiles, _matrix_maps, _dispatch, _split_kv, _tile_order, _tuned),
    *(attention, attention_backward),
)
_OPERATIONS = {
    "attention": {"attention": attention.attention},
    "attention_backward": {"attention_backward": attention_backward.attention_backward},
}


def _cut_row_groups(*arguments: Any) -> CutGroups:
    """Return the groups with the long ones split, in arrays that say their address."""
    groups, cut, parts = cut_row_groups(*arguments)
    if not parts:
        return CutGroups(groups)
    arrays = Arrays(*(groups._parts.array(i).view(DeviceArray) for i in range(5)))
    splits = groups.splits.view(DeviceArray)
    moved = RowGroups(arrays, groups.rows, groups.groups, groups.block_rows, splits)
    return CutGroups(moved, cut.view(DeviceArray), parts)


@contextmanager
def emulated_attention(directory: Path) -> Iterator[Counter]:
    """Compute attention of NumPy arrays by emulated kernels in the block of this context."""
    replaced = {
        "transpose_pattern": lambda pattern: pattern.transposed(),
        "cut_row_groups": _cut_row_groups,
    }
    with (
        patch.object(operands, "reads_bits", lambda xp: True),
        emulated(directory, _MODULES, _OPERATIONS, **replaced) as launched,
    ):
        yield launched
