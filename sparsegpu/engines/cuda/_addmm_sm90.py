"""BSR @ dense on Hopper through wgmma: describes operands to the copy engine and launches.

``cuda_src/bsr_addmm_sm90.cu`` says how the product is made. What cannot be described by tensor
maps (odd strides, several batch dimensions) is left to the other kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...pattern import Pattern
from ._blocks import ceil_div, grid
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
_INT32 = 2**31
_NARROW = 16  # rows of a box of a column-major dense, of which the copy engine brings few bytes
_NO_MAP = np.void(bytes(128))


@dataclass(frozen=True, slots=True)
class Batch:
    """The one batch dimension that the kernel walks, and the operands' strides along it."""

    count: int
    dense: int
    out: int


def one_batch(shape: tuple[int, ...], pattern: Pattern, dense: Any, out: Any) -> Batch | None:
    """Return the batch as one dimension, or None where it is not."""
    kept = [d for d, n in enumerate(shape) if n != 1]
    if not kept:
        return Batch(1, 0, 0)
    if len(kept) > 1:
        # Contiguous operands of any rank are one dimension, too.
        matrices = prod(shape)
        flat = _flat(dense, shape) and _flat(out, shape)
        if not flat or pattern.batch_size not in {1, matrices}:
            return None
        return Batch(matrices, dense.strides[-3], out.strides[-3])
    behind = kept[0] - len(shape)
    if pattern.batch_size not in {1, shape[kept[0]]}:
        return None
    return Batch(shape[kept[0]], _stride(dense, behind), _stride(out, behind))


def _flat(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether one stride leads through all batch dimensions of an array that has them all."""
    if array.shape[:-2] != shape:
        return False
    step = array.strides[-3]
    for n, stride in zip(reversed(shape), reversed(array.strides[:-2]), strict=True):
        if stride != step:
            return False
        step *= n
    return True


def _stride(array: Any, behind: int) -> int:
    """Return the stride in bytes of batch dimension ``behind`` (from the end; 0: broadcast)."""
    if array.ndim - 2 < -behind or array.shape[behind - 2] == 1:
        return 0
    return array.strides[behind - 2]


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
    batch = one_batch(p.batch, p.pattern, p.dense, p.out)
    if batch is None:
        return None
    bm, bk = p.pattern.blocksize
    m, n = p.out.shape[-2:]
    grouped = similar_row_groups if tile.reorder else row_groups
    blocks_from = None if p.order is None else p.order.reshape(-1)
    tiles = batch.count * ceil_div(n, tile.tile_n) * tile.slices  # of a group
    share = p.pattern.nnzb * tiles // multiprocessors()
    schedule, cut, parts = cut_row_groups(p.pattern, tile.rows, blocks_from, grouped, share)
    store = _store(p.out, batch)
    matrices = p.pattern.batch_size
    of_matrix = schedule.groups // matrices
    if of_matrix * tiles >= _INT32:
        return None
    sums = np.uint64(0)
    if parts:
        sums = workspace(p.pattern, "wgmma", parts * tiles * tile.sums * _SUM)
    out = (
        _out_map(p.out, batch, store) if store in {"rows", "columns"} else _NO_MAP,
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
            *_dense_maps(p.dense, p.layout, batch, tile),
            *out,
            np.void(_SIZES.pack(of_matrix, batch.count, m, n, matrices > 1, batch.dense != 0)),
            sums,
            p.epilogue,
        ),
        tile.shared_memory,
    )
    if not parts:
        return (product,)
    finish = Launch(
        kernel("bsr_addmm_sm90_parts", **defines),
        grid(len(cut) * tiles * tile.sums // _PARTS_OF_BLOCK),
        (_PARTS_THREADS,),
        (*out, cut, np.void(_PARTS_SIZES.pack(len(cut), batch.count, m, n)), sums, p.epilogue),
    )
    return product, finish


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
        and p.data.size // p.data.shape[-1] < _INT32  # the copy engine's coordinates
        and max(*p.dense.shape[-2:], p.out.shape[-2]) < _INT32
        and (p.layout not in {"rows", "columns"} or min(p.dense.strides[-2:]) > 0)
    )
    return tile if fits else None


def _store(out: Any, batch: Batch) -> str:
    """Return how the output is written: by rows or by columns, and as what.

    "rows" and "columns" are boxes that the copy engine writes, "skewed" rows that begin anywhere
    and are written in words, "any" single elements.
    """
    row, col = out.strides[-2:]
    if out.data.ptr % 16 == batch.out % 16 == 0:
        if col == out.itemsize and row % 16 == 0:
            return "rows"
        if row == out.itemsize and col % 16 == 0:
            return "columns"
    return "skewed" if col == out.itemsize and out.itemsize in {2, 4} else "any"


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


def _dense_maps(dense: Any, layout: str, batch: Batch, tile: HopperTile) -> tuple[np.void, np.void]:
    """Return the map of whole boxes of ``dense``, and that of one box at its ragged edge."""
    k, n = dense.shape[-2:]
    row, col = dense.strides[-2:]
    size = dense.itemsize
    batches, apart = (batch.count, batch.dense) if batch.dense else (1, 16)
    if layout == "columns":
        whole = tensor_map(
            dense,
            (1, tile.tile_n, tile.step_k),
            tile.step_k * size,
            shape=(batches, n, k),
            strides=(apart, col if n > 1 else 16, size),
        )
        return whole, whole
    wide = tile.step_k if size == 1 else 64  # columns of a box; of int8, squares to be turned
    edge = tensor_map(
        dense,
        (1, tile.step_k, wide),
        wide * size,
        shape=(batches, k, n),
        strides=(apart, row, size),
    )
    if n < wide:
        return edge, edge
    whole = tensor_map(
        dense,
        (1, tile.tile_n // wide, tile.step_k, wide),
        wide * size,
        shape=(batches, n // wide, k, wide),
        strides=(apart, wide * size, row, size),
    )
    return whole, edge


def _out_map(out: Any, batch: Batch, store: str) -> np.void:
    """Return the map of what a warp writes at a time: sixteen rows, 128 bytes of each if by row."""
    m, n = out.shape[-2:]
    row, col = out.strides[-2:]
    size = out.itemsize
    batches, apart = (batch.count, batch.out) if batch.out else (1, 16)
    if store == "rows":
        box, shape, strides, swizzle = (1, 16, 128 // size), (m, n), (row, size), 128
    else:
        box, shape, strides, swizzle = (1, 128 // size, 16), (n, m), (col, size), 0
    return tensor_map(out, box, swizzle, shape=(batches, *shape), strides=(apart, *strides))
