"""BSR @ few columns on tensor cores (``bsr_addmm_skinny.cu``): 16-bit operands, N up to 128."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from ._blocks import aligned, ceil_div, size_of
from ._product import Product
from .runtime.fields import Fields
from .runtime.launch import Launch, current_device, kernel, multiprocessors
from .runtime.skinny_tile import MOST_COLUMNS, chosen_skinny_tile, skinny_tile
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, vector_view

_SIZES = struct.Struct("<2I2i")


def skinny_launches(p: Product, config: Mapping[str, Any] | None) -> tuple[Launch, ...] | None:
    """Return the launches that compute a product, or None where this kernel does not serve.

    Parameters
    ----------
    p : Product
    config : mapping, optional
        ``{"path": "skinny"}``, and fields of the tile to override the choice.
    """
    if not _serves(p, config):
        return None
    bm, bk = p.pattern.blocksize
    columns, rows = p.out.shape[-1], size_of(p.out.shape[:-1])
    room = shared_memory(current_device())
    tile = skinny_tile((bm, bk), rows, columns, p.layout, multiprocessors(), room)
    if config:
        tile = chosen_skinny_tile(tile, p.layout, room, Fields(config))
    batches, block_rows = size_of(p.batch), p.pattern.block_shape[0]
    row_tiles = batches * block_rows * ceil_div(bm, tile.tile_m)
    column_tiles = ceil_div(columns, tile.tile_n)
    product = Launch(
        kernel(
            "bsr_addmm_skinny",
            T=ctype(p.data.dtype),
            INDEX=ctype(p.pattern._indices.dtype),
            BATCHED=int(batches > 1),
            COLUMN_TILES=int(column_tiles > 1),
            **p.defines,
            **tile.defines((bm, bk), p.layout),
        ),
        (row_tiles * column_tiles,),
        (32 * tile.warps,),
        (
            matrix_view(p.out, p.batch),
            vector_view(p.pattern._indptr, p.batch),
            vector_view(p.pattern._indices, p.batch),
            matrix_view(p.data[..., 0, :, :], p.batch),
            matrix_view(p.dense, p.batch),
            batch_dims(p.batch),
            np.void(_SIZES.pack(row_tiles, block_rows, columns, 0)),
            p.epilogue,
        ),
        tile.shared_memory(p.layout),
    )
    return (product,)


def _serves(p: Product, config: Mapping[str, Any] | None) -> bool:
    bm, bk = p.pattern.blocksize
    return (
        (config or {}).get("path") in {None, "skinny"}
        and not (p.empty or p.transposed)
        and p.data.dtype.name in {"bfloat16", "float16"}
        and p.out.shape[-1] <= MOST_COLUMNS
        and size_of(p.out.shape[:-1]) < 2**31
        and bm >= 8
        and bk % 8 == 0
        and p.layout in {"rows", "columns"}
        and aligned(p.data, 16)
    )


@cache
def shared_memory(device: int) -> int:
    """Return the shared memory that a thread block of a device may have, in bytes."""
    import cupy

    return int(cupy.cuda.Device(device).attributes["MaxSharedMemoryPerBlockOptin"])
