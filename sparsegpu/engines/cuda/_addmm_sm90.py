"""BSR @ dense on Hopper through wgmma: describes operands to the copy engine and launches.

``cuda_src/bsr_addmm_sm90.cu`` says how the product is made. What cannot be described by tensor
maps (odd strides, several batch dimensions) is left to the other kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ._blocks import ceil_div, grid
from ._boxes import INT32, dense_maps, one_batch, out_map, way_of_storing
from ._dense_lines import aligned_lines
from ._long_groups import cut_row_groups
from ._product import Product
from ._row_order import similar_row_groups
from ._schedule import row_groups
from .runtime.fields import Fields
from .runtime.hopper_tile import FEW, HopperTile, hopper_tile
from .runtime.launch import Launch, kernel, multiprocessors, runs_here
from .runtime.plan import workspace
from .runtime.tensor_map import tensor_map
from .runtime.types import ctype
from .runtime.view import MAX_BATCH_DIMS, batch_dims, matrix_view

_SIZES = struct.Struct("<4q2i")
_PARTS_SIZES = struct.Struct("<4q")
_SUM = 4  # bytes of a sum
_PARTS_THREADS = 128
_PARTS_OF_BLOCK = 64 * 64  # sums that a thread block adds at a time, where outputs have two bytes
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
    dense, copy = aligned_lines(p, by_column)
    layout = "columns" if by_column else "rows"
    launches = _launches(replace(p, dense=dense, layout=layout), tile)
    return None if launches is None else (copy, *launches)


def _launches(p: Product, tile: HopperTile) -> tuple[Launch, ...] | None:
    batch = one_batch(p.batch, p.pattern.batch_size, p.dense, p.out)
    if batch is None:
        return None
    bm, bk = p.pattern.blocksize
    m, n = p.out.shape[-2:]
    grouped = similar_row_groups if tile.reorder else row_groups
    blocks_from = None if p.order is None else p.order.reshape(-1)
    tiles = batch.count * ceil_div(n, tile.tile_n) * tile.slices  # of a group
    share = p.pattern.nnzb * tiles // multiprocessors()
    schedule, cut, parts = cut_row_groups(p.pattern, tile.rows, blocks_from, grouped, share)
    store = way_of_storing(p.out, batch)
    matrices = p.pattern.batch_size
    of_matrix = schedule.groups // matrices
    if of_matrix * tiles >= INT32:
        return None
    sums = np.uint64(0)
    if parts:
        sums = workspace(p.pattern, "wgmma", parts * tiles * tile.sums * _SUM)
    out = (
        out_map(p.out, batch, store),
        matrix_view(p.out, p.batch),
        batch_dims(p.batch),
        schedule.argument(),
    )
    defines = {
        "T": ctype(p.data.dtype),
        "INDEX": ctype(schedule.blocks.dtype),
        "BM": bm,
        "STORE": store,
        "TILE_N": tile.tile_n,
        **p.defines,
    }
    product = Launch(
        kernel(
            "bsr_addmm_sm90",
            BK=bk,
            TRANSPOSED=int(p.transposed),
            DENSE=p.layout,
            STAGES=tile.stages,
            PARTS=int(parts > 0),
            **defines,
        ),
        (min(of_matrix * tiles, multiprocessors()),),
        (tile.threads,),
        (
            _values_map(p.data, bm, bk, p.transposed, tile),
            *dense_maps(p.dense, p.layout, batch, tile.tile_n, tile.step_k),
            *out,
            np.void(_SIZES.pack(of_matrix, batch.count, m, n, matrices > 1, batch.dense != 0)),
            sums,
            p.epilogue,
        ),
        tile.shared_memory,
    )
    if not parts:
        return (product,)
    return product, added_parts(out, cut, tiles, tile.sums, (batch.count, m, n), sums, p, defines)


def added_parts(
    out: tuple,
    cut: Any,
    tiles: int,
    sums: int,
    sizes: tuple[int, int, int],
    memory: Any,
    p: Product,
    defines: Mapping[str, Any],
) -> Launch:
    """Return the launch that adds the parts of groups that were cut.

    Parameters
    ----------
    out : tuple
        The kernel's arguments for the output and the schedule.
    cut : int32 array (groups, 3)
        As of `CutGroups`.
    tiles : int
        Of a group.
    sums : int
        Of a tile.
    sizes : (batches, m, n)
    memory : array
        The sums.
    p : Product
    defines : mapping
    """
    return Launch(
        kernel("bsr_addmm_sm90_parts", **defines),
        grid(len(cut) * tiles * sums // _PARTS_OF_BLOCK),
        (_PARTS_THREADS,),
        (*out, cut, np.void(_PARTS_SIZES.pack(len(cut), *sizes)), memory, p.epilogue),
    )


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
