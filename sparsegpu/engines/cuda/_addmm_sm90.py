"""BSR @ dense on Hopper through wgmma: describes operands to the copy engine and launches.

``cuda_src/bsr_addmm_sm90.cu`` says how the product is made. What cannot be described by tensor
maps (odd strides, several batch dimensions) is left to the other kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ._boxes import INT32
from ._dense_lines import aligned_lines
from ._product import Product
from ._row_group_product import row_group_launches
from .runtime.fields import Fields
from .runtime.hopper_tile import FEW, HopperTile, hopper_tile
from .runtime.launch import Launch, runs_here
from .runtime.tensor_map import tensor_map
from .runtime.view import MAX_BATCH_DIMS

_NARROW = 16  # rows of a box of a column-major dense, of which the copy engine brings few bytes


def sm90_launches(product: Product, config: Mapping[str, Any] | None) -> tuple[Launch, ...] | None:
    """Return the launches that compute a product, or None where this kernel does not serve.

    A `dense` that the copy engine cannot read as it lies is copied to aligned rows first (int8 and
    TF32: columns, the only layout that wgmma takes, unless the kernel turns int8 rows itself), in
    workspace kept with the pattern: at memory speed, which the product then saves many times.

    Parameters
    ----------
    product : Product
    config : mapping, optional
        ``{"path": "wgmma"}``, and fields of the tile to override the choice.
    """
    p = product
    tile = _tile_for(p, config)
    if tile is None:
        return None
    by_column = p.data.itemsize != 2
    columns_as_they_lie = p.layout == "columns" and (by_column or tile.step_k > _NARROW)
    rows_as_they_lie = p.layout == "rows" and (not by_column or tile.turns)
    if columns_as_they_lie or rows_as_they_lie:
        return _launches(p, tile)
    if p.dense.ndim - 2 > MAX_BATCH_DIMS:
        return None
    dense, copy = aligned_lines(p.dense, by_column)
    layout = "columns" if by_column else "rows"
    launches = _launches(replace(p, dense=dense, layout=layout), tile)
    return None if launches is None else (copy, *launches)


def _launches(p: Product, tile: HopperTile) -> tuple[Launch, ...] | None:
    bm, bk = p.pattern.blocksize
    values = _values_map(p.data, bm, bk, p.transposed, tile)
    transposed = int(p.transposed)
    return row_group_launches(p, tile, "bsr_addmm_sm90", (values,), TRANSPOSED=transposed)


def _tile_for(p: Product, config: Mapping[str, Any] | None) -> HopperTile | None:
    """Return the tile to multiply with, or None where the operands are not for this kernel."""
    n = p.out.shape[-1]
    if (config or {}).get("path") not in {None, "wgmma"}:
        return None
    if p.empty or n <= FEW or not runs_here("bsr_addmm_sm90"):
        return None
    if p.data.dtype == np.float32 and not p.allow_tf32:
        return None
    fields = Fields(config)
    density = p.pattern.nnzb / prod(p.pattern.block_shape)
    tile = hopper_tile(p.data.dtype, p.pattern.blocksize, n, p.transposed, fields, density)
    fits = (
        p.data.flags.c_contiguous
        and p.data.data.ptr % 16 == 0
        and p.data.size // p.data.shape[-1] < INT32  # the copy engine's coordinates
        and max(*p.dense.shape[-2:], p.out.shape[-2]) < INT32
        and (p.layout not in {"rows", "columns"} or min(p.dense.strides[-2:]) > 0)
    )
    return tile if fits else None


def _values_map(data: Any, bm: int, bk: int, transposed: bool, tile: HopperTile) -> np.void:
    """Return the map of all blocks' rows, one below the other."""
    columns = bm if transposed else bk
    box = (tile.step_k, tile.box_m) if transposed else (tile.slice_m, tile.step_k)
    size = data.itemsize
    return tensor_map(
        data,
        box,
        box[1] * size,
        shape=(data.size // columns, columns),
        strides=(columns * size, size),
    )
