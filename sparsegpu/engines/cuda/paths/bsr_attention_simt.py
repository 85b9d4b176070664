"""Attention without tensor cores (``bsr_attention_simt.cu``): every dtype, block size and stride.

The path to read first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...._math import ceil_div
from .._grid import grid, packed_mask
from .._score_args import mask_type, score_args
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch, kernel
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_view, vector_view
from . import _attention
from ._attention import Attention, AttentionFacts, simt_shape
from ._facts import FLOATS, INDICES, always
from ._fields import Fields

NAME = "simt"
SOURCES = ("bsr_attention_simt",)
DTYPES, ARCHS = FLOATS, PORTABLE
TENSOR_CORES = False
BY_ADDRESS = INDICES

facts, examples, pays, serves = Attention.facts, _attention.examples, always, always
worth_measuring = always


@dataclass(frozen=True, slots=True)
class Tile:
    """Query rows of a warp, warps, and value columns of a lane."""

    rows: int
    warps: int
    columns: int
    defines: dict[str, Any]


def tile(f: AttentionFacts, fields: Fields) -> Tile:
    """Return the tile; it has no fields."""
    rows, warps, columns = simt_shape(f.blocksize[0], f.value_features, f.dtype)
    return Tile(
        rows,
        warps,
        columns,
        {
            "T": ctype(f.dtype),
            "OUT": ctype(f.out_dtype),
            "MASK": mask_type(f.packed, f.mask_dtype),
            "SOFTCAP": int(f.softcap),
            "SLOPES": int(f.slopes),
            "SINKS": int(f.sinks),
            "ROWS": rows,
            "COLUMNS": columns,
        },
    )


def launches(p: Attention, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch: without a score matrix in memory."""
    bm, bk = p.pattern.blocksize
    features, value_features = p.query.shape[-1], p.value.shape[-1]
    block_rows = p.pattern.block_shape[0]
    tiles = ceil_div(bm, tile.rows * tile.warps)
    slices = ceil_div(value_features, 32 * tile.columns)
    items = prod(p.batch) * block_rows * tiles * slices
    return (
        Launch(
            kernel(SOURCES[0], INDEX=ctype(p.indices.dtype), **tile.defines),
            grid(items),
            (32 * tile.warps,),
            (
                matrix_view(p.out, p.batch),
                vector_view(p.lse, p.batch),
                matrix_view(p.query, p.batch),
                matrix_view(p.key, p.batch),
                matrix_view(p.value, p.batch),
                vector_view(p.indptr, p.batch),
                vector_view(p.indices, p.batch),
                vector_view(p.sinks, p.batch),
                batch_dims(p.batch),
                np.int64(tiles),
                np.int64(slices),
                np.int64(items),
                np.int64(block_rows),
                np.int32(bm),
                np.int32(bk),
                np.int32(features),
                np.int32(value_features),
                score_args(p.score, p.batch, p.masks, p.slopes, p.dtype, packed_mask(p.mask_data))[
                    1
                ],
            ),
        ),
    )
