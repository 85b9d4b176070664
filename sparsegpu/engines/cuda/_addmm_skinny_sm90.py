"""BSR @ few columns on Hopper (``bsr_addmm_skinny_sm90.cu``): 16-bit blocks of multiples of 64."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._blocks import aligned, ceil_div, size_of
from ._product import Product
from ._row_shares import row_shares
from .runtime.fields import Fields
from .runtime.launch import Launch, kernel, multiprocessors, runs_here
from .runtime.skinny_sm90_tile import (
    GOOD_COLUMNS,
    MOST_COLUMNS,
    SIDE,
    THREADS,
    chosen_skinny_clusters,
    skinny_clusters,
)
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, vector_view

_PATH = "skinny_wgmma"
_SOURCE = "bsr_addmm_skinny_sm90"
_SIZES = struct.Struct("<4i")


def skinny_sm90_launches(p: Product, config: Mapping[str, Any] | None) -> tuple[Launch, ...] | None:
    """Return the launches that compute a product, or None where this kernel does not serve.

    Parameters
    ----------
    p : Product
    config : mapping, optional
        ``{"path": "skinny_wgmma"}``, and fields of the tile to override the choice.
    """
    if not _serves(p, config):
        return None
    bm, bk = p.pattern.blocksize
    batches, (m, n) = size_of(p.batch), p.out.shape[-2:]
    row_tiles = m // SIDE
    tile = skinny_clusters(batches * row_tiles, n, multiprocessors())
    if config:
        tile = chosen_skinny_clusters(tile, Fields(config))
    thread_blocks = ceil_div(row_tiles, tile.together) * tile.cluster
    column_tiles = ceil_div(n, tile.tile_n)
    product = Launch(
        kernel(
            _SOURCE,
            T=ctype(p.data.dtype),
            INDEX=ctype(p.pattern._indices.dtype),
            BM=bm,
            BK=bk,
            DENSE=p.layout,
            BATCHED=int(batches > 1),
            COLUMN_TILES=int(column_tiles > 1),
            **p.defines,
            **tile.defines,
        ),
        (batches * column_tiles * thread_blocks,),
        (THREADS,),
        (
            matrix_view(p.out, p.batch),
            vector_view(row_shares(p.pattern, tile.cluster, tile.together), p.batch),
            vector_view(p.pattern._indices, p.batch),
            matrix_view(p.data[..., 0, :, :], p.batch),
            matrix_view(p.dense, p.batch),
            batch_dims(p.batch),
            np.void(_SIZES.pack(thread_blocks, n, column_tiles, 0)),
            p.epilogue,
        ),
        tile.shared_memory,
    )
    return (product,)


def _serves(p: Product, config: Mapping[str, Any] | None) -> bool:
    (bm, bk), columns = p.pattern.blocksize, p.out.shape[-1]
    wanted = config["path"] == _PATH if config else columns in GOOD_COLUMNS
    return (
        wanted
        and not (p.empty or p.transposed)
        and p.data.dtype.name in {"bfloat16", "float16"}
        and columns <= MOST_COLUMNS
        and size_of(p.out.shape[:-1]) < 2**31
        and bm % SIDE == bk % SIDE == 0
        and p.layout in {"rows", "columns"}
        and aligned(p.data, 16)
        and runs_here(_SOURCE)
    )
