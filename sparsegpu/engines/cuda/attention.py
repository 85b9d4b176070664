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
    heads = out.shape[-3]
    groups = heads // key.shape[-3]
    if groups > 1:
        # Query heads in groups of one key head: then key and value only broadcast.
        out, query, lse = (_split(a, n, heads, groups) for a, n in ((out, 2), (query, 2), (lse, 1)))
        key, value = key[..., None, :, :], value[..., None, :, :]
    indptr = _split(pattern._indptr, 1, heads, groups)
    indices = _split(pattern._indices, 1, heads, groups)
    blocks = flat_blocks(mask_data)  # may be a copy: it has to outlive the launch
    masks = _split(blocks, 2, heads, groups)
    slopes, sinks = (_split(a, 0, heads, groups) for a in (score.slopes, sinks))
    batch = merged_batch(
        out.shape[:-2],
        *((a, 2) for a in (out, query, key, value, masks)),
        *((a, 1) for a in (lse, indptr, indices)),
        *((a, 0) for a in (slopes, sinks)),
    )
    features, value_features = query.shape[-1], value.shape[-1]
    bm, bk = pattern.blocksize
    rows, warps, columns = _tile(bm, value_features, query.dtype)
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
            vector_view(None if sinks is None else sinks[..., None], batch),
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


def _split(array: Any, trailing: int, heads: int, groups: int) -> Any:
    """Return a view whose head axis is split into (key heads, groups).

    The head axis stands before the ``trailing`` last ones; where it is missing or 1 it broadcasts.
    """
    if groups == 1 or array is None or array.ndim <= trailing:
        return array
    axis = array.ndim - trailing - 1
    inner = array.shape[axis + 1 :]
    split = (1, 1) if array.shape[axis] == 1 else (heads // groups, groups)
    return array.reshape(*array.shape[:axis], *split, *inner)


def _tile(bm: int, value_features: int, dtype: np.dtype) -> tuple[int, int, int]:
    """Return query rows a warp, warps, and value columns a lane."""
    wide = dtype == np.float64
    rows = 1 if bm < 8 else 2 if wide else 4
    columns = 2 if value_features <= 64 else 4 if value_features <= 128 or wide else 8
    return rows, min(_MOST_WARPS, ceil_div(bm, rows)), columns
