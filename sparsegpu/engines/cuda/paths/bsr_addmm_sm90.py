"""BSR @ dense on Hopper through wgmma (``bsr_addmm_sm90.cu``): 16-bit, int8 and TF32.

What tensor maps cannot describe (odd strides, several batch dimensions) is left to the other paths.
A ``dense`` that they cannot describe as it lies is copied to aligned lines first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...._math import ceil_div
from ..runtime.architectures import HOPPER
from ..runtime.launch import Launch
from ..runtime.tensor_map import tensor_map
from ..runtime.types import ctype
from ..runtime.view import MAX_BATCH_DIMS
from . import _row_group_product
from ._dense_lines import aligned_lines
from ._facts import HALVES, Facts, always
from ._fields import Fields
from ._product import Product
from ._row_group_product import row_group_launches
from ._sm90 import (
    MOST_STAGES,
    RESERVED,
    SHARED,
    STAGE_BYTES_K,
    STORE_BUFFERS,
    TILE_M,
    RowGroupTile,
    covering,
    multiplies,
    pays_to_group,
    widths,
)
from ._tma import INT32

NAME = "wgmma"
SOURCES = ("bsr_addmm_sm90",)
DTYPES, ARCHS = (*HALVES, "int8", "float32"), HOPPER
TENSOR_CORES = True
BY_ADDRESS = _row_group_product.BY_ADDRESS

_NARROW = 16  # rows of a box of a column-major dense, of which TMA loads few bytes
# The density up to which the kernel transposes row-major int8: a tile is then loaded by few row
# groups, and transposing it each time costs less than one copy of all of ``dense``.
_TRANSPOSE_AGAIN = 0.125

facts, pays, worth_measuring = Product.facts, always, always


@dataclass(frozen=True, slots=True)
class Tile(RowGroupTile):
    """The tile of a thread block.

    Attributes
    ----------
    box : (int, int)
        Of the blocks' values that one TMA load reads.
    transpose_in_smem : int
        Whether the kernel transposes row-major int8 itself, in shared memory.
    """

    box: tuple[int, int]
    transpose_in_smem: int


def serves(p: Product) -> bool:
    """Return whether tensor maps describe the blocks, in 32-bit coordinates."""
    return (
        not p.empty
        and p.data.flags.c_contiguous
        and p.data.data.ptr % 16 == 0
        and p.data.size // p.data.shape[-1] < INT32
        and max(*p.dense.shape[-2:], p.out.shape[-2]) < INT32
        and (p.layout not in {"rows", "columns"} or min(p.dense.strides[-2:]) > 0)
    )


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return the tile, or None for blocks and dtypes that wgmma cannot multiply.

    ``fields`` may say ``tile_n``, ``stages``, ``group_similar_rows`` and, of int8,
    ``transpose_in_smem``.

    Examples
    --------
    >>> import numpy as np
    >>> f16, shape = np.dtype("float16"), (4096, 4096, 4096)
    >>> chosen = tile(Facts(dtype=f16, shape=shape, blocksize=(32, 32)), Fields())
    >>> chosen.rows, chosen.tile_n, chosen.defines["STAGES"]
    (4, 256, 4)
    >>> tile(Facts(dtype=np.dtype("int8"), shape=shape, blocksize=(64, 64)), Fields()).step_k
    64
    >>> tile(Facts(dtype=f16, shape=shape, blocksize=(24, 24)), Fields())
    """
    if not multiplies(f):
        return None
    (bm, bk), size = f.blocksize, f.itemsize
    step_k = next(width // size for width in (STAGE_BYTES_K, 64, 32) if bk * size % width == 0)
    slice_m = min(bm, TILE_M)
    rows = TILE_M // slice_m
    allowed = widths(size == 1)
    tile_n = fields.pick("tile_n", covering(f.columns, allowed), allowed)
    stage = (rows * slice_m + tile_n) * STAGE_BYTES_K
    most = min((SHARED - RESERVED - STORE_BUFFERS) // stage, MOST_STAGES)
    stages = fields.pick("stages", most, range(2, most + 1))
    similar = fields.pick("group_similar_rows", pays_to_group(f), (0, 1) if rows > 1 else (0,))
    # Two warps transpose what was loaded, each a step of a stage: where steps are not narrow. The
    # fragments of smaller blocks need the registers that this takes.
    transpose = 0
    if size == 1 and slice_m % 64 == 0 and step_k >= STAGE_BYTES_K // 2:
        transpose = fields.pick("transpose_in_smem", int(f.density <= _TRANSPOSE_AGAIN), (0, 1))
    box_m = 64 if slice_m % 64 == 0 else slice_m
    return Tile(
        tile_n=tile_n,
        step_k=step_k,
        rows=rows,
        slices=ceil_div(bm, TILE_M),
        group_similar_rows=similar,
        shared_memory=stages * stage + STORE_BUFFERS + 1024,
        defines={
            "T": ctype(f.dtype),
            "BM": bm,
            "BK": bk,
            "TRANSPOSED": int(f.transposed),
            "DENSE": _dense_layout(f.layout, size, step_k, transpose),
            "TILE_N": tile_n,
            "STAGES": stages,
        },
        box=(step_k, box_m) if f.transposed else (slice_m, step_k),
        transpose_in_smem=transpose,
    )


def _dense_layout(layout: str, itemsize: int, step_k: int, transpose: int) -> str:
    """Return the layout in which the kernel reads ``dense``: in place if it can, else of a copy."""
    if layout == "columns" and (itemsize != 2 or step_k > _NARROW):
        return layout
    if layout == "rows" and (itemsize == 2 or transpose):
        return layout
    return "rows" if itemsize == 2 else "columns"


def launches(p: Product, tile: Tile) -> tuple[Launch, ...] | None:
    """Return the launches, or None where tensor maps or 32-bit numbers do not serve."""
    copies: tuple[Launch, ...] = ()
    wanted = tile.defines["DENSE"]
    if p.layout != wanted:
        if p.dense.ndim - 2 > MAX_BATCH_DIMS:
            return None
        dense, copy = aligned_lines(p.dense, wanted == "columns")
        p, copies = replace(p, dense=dense, layout=wanted), (copy,)
    product = row_group_launches(p, tile, SOURCES[0], (_values_map(p.data, tile),))
    return None if product is None else (*copies, *product)


def _values_map(data: Any, tile: Tile) -> bytes:
    """Return the map of the rows of all blocks, as one matrix."""
    columns, size = data.shape[-1], data.itemsize
    return tensor_map(
        data,
        tile.box,
        tile.box[1] * size,
        shape=(data.size // columns, columns),
        strides=(columns * size, size),
    )
