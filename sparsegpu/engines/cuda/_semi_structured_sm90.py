"""2:4 @ dense on Hopper through wgmma: describes operands to the copy engine and launches.

``cuda_src/semi_structured_addmm_sm90.cu`` says how the product is made.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._blocks import ceil_div
from ._boxes import dense_maps, one_batch, out_map, way_of_storing
from ._product import layout_of
from .runtime.fields import Fields
from .runtime.launch import Launch, kernel, multiprocessors, runs_here
from .runtime.sparse_tile import STAGE_BYTES_K, TILE_M, sparse_tile
from .runtime.tensor_map import tensor_map
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view

_SIZES = struct.Struct("<3q2i")
_INT32 = 2**31
_PAIRS = 2  # of columns of metadata that a stage holds


def sm90_launch(
    out: Any,
    packed: Any,
    meta: Any,
    dense: Any,
    batch: tuple[int, ...],
    operand_dtype: np.dtype,
    terms: int,
    config: Mapping[str, Any] | None,
    defines: dict[str, str],
    epilogue: np.void,
) -> Launch | None:
    """Return the launch that computes a product, or None where this kernel does not serve.

    Parameters
    ----------
    out, packed, meta, dense
        As in `semi_structured.semi_structured_addmm`; packed and meta are contiguous.
    batch : tuple of int
        Of the views.
    operand_dtype : dtype
    terms : int
        Packed values of a row, or 0 where nothing is to be multiplied.
    config : mapping, optional
        Fields of the tile.
    defines, epilogue
        What `epilogue_args` makes of the epilogue.
    """
    m, n = out.shape[-2:]
    size, k = packed.itemsize, dense.shape[-2]
    if not m * n * k or max(m, n, k) >= _INT32 or not runs_here("semi_structured_addmm_sm90"):
        return None
    tile = sparse_tile(size, n, Fields(config, "semi_structured_addmm"))
    layout = layout_of(dense)
    # wgmma takes k contiguous but for 16-bit types.
    if layout != "columns" and (layout != "rows" or size != 2):
        return None
    if min(dense.strides[-2:]) <= 0:
        return None
    walk = one_batch(batch, 1, dense, out)
    if walk is None:
        return None
    store = way_of_storing(out, walk)
    compiled = kernel(
        "semi_structured_addmm_sm90",
        T=ctype(operand_dtype),
        DENSE=layout,
        STORE=store,
        TILE_N=tile.tile_n,
        STAGES=tile.stages,
        **defines,
    )
    tiles = ceil_div(m, TILE_M) * ceil_div(n, tile.tile_n) * walk.count
    if tiles >= _INT32:
        return None
    stages = ceil_div(2 * terms * size, STAGE_BYTES_K)
    sizes = _SIZES.pack(m, n, walk.count, stages, walk.dense != 0)
    return Launch(
        compiled,
        (min(tiles, multiprocessors()),),
        (tile.threads,),
        (
            tensor_map(packed, (TILE_M, STAGE_BYTES_K // 2 // size), STAGE_BYTES_K // 2),
            _codes_map(meta),
            *dense_maps(dense, layout, walk, tile.tile_n, STAGE_BYTES_K // size),
            out_map(out, walk, store),
            matrix_view(out, batch),
            batch_dims(batch),
            np.void(sizes),
            epilogue,
        ),
        tile.shared_memory,
    )


def _codes_map(meta: Any) -> np.void:
    """Return the map of metadata in CUTLASS's order: pairs of columns, one behind the other."""
    m, columns = meta.shape
    size = meta.itemsize
    return tensor_map(
        meta, (_PAIRS, 2 * TILE_M), shape=(columns // 2, 2 * m), strides=(2 * m * size, size)
    )
