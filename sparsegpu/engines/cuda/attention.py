"""Host side of ``bsr_attention``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._math import ceil_div
from ..._score import Score
from ...pattern import Pattern
from ._grid import flat_blocks, grid, same_place, size_of
from ._score_args import score_args
from .runtime.launch import Launch, kernel, submit
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, merged_batch, vector_view

_MOST_WARPS = 4


def attention(
    out: Any,
    lse: Any,
    query: Any,
    key: Any,
    value: Any,
    pattern: Pattern,
    mask_data: Any,
    score: Score,
    sinks: Any,
) -> None:
    """Write ``softmax(scale * query @ key.T + mask) @ value`` over the stored positions.

    One launch, without a score matrix in memory.
    """
    heads, kv_heads = out.shape[-3], key.shape[-3]
    blocks = flat_blocks(mask_data)  # may be a copy: it has to outlive the launch
    out, query, key, value, masks = (
        split_heads(a, 2, heads, kv_heads) for a in (out, query, key, value, blocks)
    )
    lse, indptr, indices = (
        split_heads(a, 1, heads, kv_heads) for a in (lse, pattern._indptr, pattern._indices)
    )
    slopes, sinks = (split_heads(as_vectors(a), 1, heads, kv_heads) for a in (score.slopes, sinks))
    batch = merged_batch(
        out.shape[:-2],
        *((a, 2) for a in (out, query, key, value, masks)),
        *((a, 1) for a in (lse, indptr, indices, slopes, sinks)),
    )
    features, value_features = query.shape[-1], value.shape[-1]
    bm, bk = pattern.blocksize
    rows, warps, columns = tile_of(bm, value_features, query.dtype)
    tiles, slices = ceil_div(bm, rows * warps), ceil_div(value_features, 32 * columns)
    items = size_of(batch) * pattern.block_shape[0] * tiles * slices
    defines, score_argument = score_args(score, batch, masks, slopes, query.dtype)
    compiled = kernel(
        "bsr_attention",
        T=ctype(query.dtype),
        OUT=ctype(out.dtype),
        INDEX=ctype(pattern._indices.dtype),
        SINKS=int(sinks is not None),
        ROWS=rows,
        COLUMNS=columns,
        **defines,
    )
    launch = Launch(
        compiled,
        grid(items),
        (32 * warps,),
        (
            matrix_view(out, batch),
            vector_view(lse, batch),
            matrix_view(query, batch),
            matrix_view(key, batch),
            matrix_view(value, batch),
            vector_view(indptr, batch),
            vector_view(indices, batch),
            vector_view(sinks, batch),
            batch_dims(batch),
            np.int64(tiles),
            np.int64(slices),
            np.int64(items),
            np.int64(pattern.block_shape[0]),
            np.int32(bm),
            np.int32(bk),
            np.int32(features),
            np.int32(value_features),
            score_argument,
        ),
    )
    submit(launch, whole=same_place(blocks, mask_data))


def as_vectors(of_heads: Any) -> Any:
    """Return numbers of heads (*B, H) as vectors of one element, as a kernel's batch has them."""
    return None if of_heads is None else of_heads[..., None]


def split_heads(array: Any, trailing: int, heads: int, kv_heads: int) -> Any:
    """Return a view whose axis of heads is split into (key heads, groups), if there are groups.

    That axis stands before the ``trailing`` last ones; where it is missing or 1 it broadcasts.
    With groups, key and value only broadcast.
    """
    groups = heads // kv_heads
    if groups == 1 or array is None or array.ndim <= trailing:
        return array
    axis = array.ndim - trailing - 1
    n = array.shape[axis]
    split = (kv_heads, groups) if n == heads else (n, 1)
    return array.reshape(*array.shape[:axis], *split, *array.shape[axis + 1 :])


def tile_of(bm: int, value_features: int, dtype: np.dtype) -> tuple[int, int, int]:
    """Return query rows a warp, warps, and value columns a lane."""
    wide = dtype == np.float64
    rows = 1 if bm < 8 else 2 if wide else 4
    columns = 2 if value_features <= 64 else 4 if value_features <= 128 or wide else 8
    return rows, min(_MOST_WARPS, ceil_div(bm, rows)), columns
