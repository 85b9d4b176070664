"""BSR @ dense in 16 bits on tensor cores from 8.0 on, row groups sharing tiles of ``dense``.

``cuda_src/bsr_addmm_groups.cu`` says how. Operands that it cannot copy in pieces of 16 bytes are
laid out anew before, in workspace: blocks of odd sizes, and a ``dense`` whose
lines do not begin at such addresses.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ._addmm_skinny import shared_memory
from ._blocks import THREADS, ceil_div, grid, size_of
from ._boxes import INT32
from ._dense_lines import aligned_lines
from ._product import Product
from ._schedule import row_groups
from .runtime.config import MAX_GRID
from .runtime.fields import Fields
from .runtime.group_tile import FEWEST_COLUMNS, PIECE, group_tile
from .runtime.launch import Launch, current_device, kernel
from .runtime.submission import workspace
from .runtime.types import ctype
from .runtime.view import MAX_BATCH_DIMS, batch_dims, matrix_view

_SIZES = struct.Struct("<5qi4x")


def group_launches(p: Product, config: Mapping[str, Any] | None) -> tuple[Launch, ...] | None:
    """Return the launches that compute a product, or None where this kernel does not serve.

    Parameters
    ----------
    p : Product
    config : mapping, optional
        ``{"path": "groups"}``, and fields of its tile (`runtime.group_tile.group_tile`).
    """
    if not _serves(p, config):
        return None
    launches = []
    bm, bk = p.pattern.blocksize
    by_row = p.layout == "rows"
    if not by_row and (p.layout != "columns" or bk % PIECE):
        dense, copy = aligned_lines(p.dense, False)
        p, by_row = replace(p, dense=dense), True
        launches.append(copy)
    address = p.data.data.ptr
    data: Any = np.uint64(address)  # a call that is kept must not keep the values
    if p.transposed or bk % PIECE or address % 16:
        data, copy = _padded_blocks(p)
        launches.append(copy)

    room = shared_memory(current_device())
    tile = group_tile((bm, bk), p.out.shape[-1], by_row, room, Fields(config))
    schedule = row_groups(p.pattern, tile.group, None if p.order is None else p.order.reshape(-1))
    matrices, batches = p.pattern.batch_size, size_of(p.batch)
    groups, n = schedule.groups // matrices, p.out.shape[-1]
    tiles = groups * batches * ceil_div(n, tile.tile_n) * tile.parts
    if tiles > MAX_GRID:
        return None
    sizes = (groups, p.pattern.block_shape[0], batches, n, tile.together, matrices > 1)
    product = Launch(
        kernel(
            "bsr_addmm_groups",
            T=ctype(p.data.dtype),
            INDEX=ctype(schedule.blocks.dtype),
            BM=bm,
            BK=bk,
            **p.defines,
            **tile.defines,
        ),
        (tiles,),
        (tile.threads,),
        (
            matrix_view(p.out, p.batch),
            data,
            matrix_view(p.dense, p.batch),
            batch_dims(p.batch),
            schedule.argument(),
            np.void(_SIZES.pack(*sizes)),
            p.epilogue,
        ),
        tile.shared_memory,
    )
    return (*launches, product)


def _serves(p: Product, config: Mapping[str, Any] | None) -> bool:
    return (
        (config or {}).get("path") in {None, "groups"}
        and not p.empty
        and p.data.dtype.name in {"bfloat16", "float16"}
        and p.out.shape[-1] >= FEWEST_COLUMNS
        and p.out.shape[-1] % PIECE == 0
        and p.data.flags.c_contiguous
        and p.pattern.batch_size in {1, size_of(p.batch)}
        and p.pattern.block_shape[1] < INT32
        and p.dense.ndim - 2 <= MAX_BATCH_DIMS
    )


def _padded_blocks(p: Product) -> tuple[Any, Launch]:
    """Return workspace for the blocks, turned if need be, in rows of whole pieces; and its copy."""
    bm, bk = p.pattern.blocksize
    blocks = p.data.size // (bm * bk)
    pieces = blocks * bm * ceil_div(bk, PIECE)
    memory = workspace(pieces * PIECE * p.data.itemsize)
    copy = Launch(
        kernel("bsr_pad_blocks", T=ctype(p.data.dtype), TRANSPOSED=int(p.transposed)),
        grid(ceil_div(pieces, THREADS)),
        (THREADS,),
        (memory, np.uint64(p.data.data.ptr), np.int64(pieces), np.int32(bm), np.int32(bk)),
    )
    return memory, copy
