"""BSR of 2:4 blocks @ dense on Hopper through wgmma (``bsr_semi_structured_addmm_sm90.cu``).

Stages hold 128 bytes of k, as those of `semi_structured_addmm_sm90`; rows are grouped as for
`bsr_addmm_sm90`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...._math import ceil_div
from ..runtime.architectures import HOPPER
from ..runtime.launch import Launch
from ..runtime.tensor_map import tensor_map
from ..runtime.types import ctype
from . import _row_group_product
from ._dense_lines import tensor_core_lines
from ._facts import HALVES, Facts, always
from ._fields import Fields
from ._product import Product
from ._row_group_product import row_group_launches
from ._sm90 import (
    MOST_STAGES,
    PAIRS,
    RESERVED,
    SHARED,
    STAGE_BYTES_K,
    STORE_BUFFERS,
    TILE_M,
    RowGroupTile,
    covering,
    pair_bytes,
    pays_to_group,
    widths,
)
from ._tma import INT32, codes_map

NAME = "wgmma_sp"
SOURCES = ("bsr_semi_structured_addmm_sm90",)
DTYPES, ARCHS = (*HALVES, "int8", "float32"), HOPPER
TENSOR_CORES = True
BY_ADDRESS = {**_row_group_product.BY_ADDRESS, "DENSE": ("rows", "columns")}

# From which density on a band of so many groups takes all panels of columns before the next band
# does (measured): these groups read most columns at about the same time, and L2 keeps the blocks,
# too. Where little is stored, a panel of `dense` is read by as many groups as there are.
_MUCH, _BAND = 0.4, 16

facts, pays = Product.facts, always


@dataclass(frozen=True, slots=True)
class Tile(RowGroupTile):
    """The tile of a thread block.

    Attributes
    ----------
    slice_m : int
        Rows of a block that a tile holds.
    slices_per_copy : int
        Slices of k that one copy of TMA loads.
    """

    slice_m: int
    slices_per_copy: int


def serves(p: Product) -> bool:
    """Return whether tensor maps describe the blocks, in 32-bit coordinates."""
    return (
        not p.empty
        and p.data.data.ptr % 16 == p.meta.data.ptr % 16 == 0
        and p.data.size // p.data.shape[-1] < INT32
        and max(*p.dense.shape[-2:], p.out.shape[-2]) < INT32
    )


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return the tile, or None for blocks that wgmma does not take.

    ``fields`` may say ``tile_n``, ``slices_per_copy``, ``stages``, ``group_similar_rows`` and
    ``raster_band``.

    Examples
    --------
    >>> import numpy as np
    >>> f16, shape = np.dtype("float16"), (4096, 4096, 4096)
    >>> chosen = tile(Facts(dtype=f16, shape=shape, blocksize=(128, 128)), Fields())
    >>> chosen.rows, chosen.tile_n, chosen.defines["STAGES"]
    (1, 256, 4)
    >>> tile(Facts(dtype=f16, shape=shape, blocksize=(32, 32)), Fields())
    """
    (bm, bk), size = f.blocksize, f.itemsize
    if not f.tensor_cores or bm % 64 or bk * size % STAGE_BYTES_K:
        return None
    slice_m = min(bm, TILE_M)
    rows = TILE_M // slice_m
    allowed = widths(size == 1)
    tile_n = fields.pick("tile_n", covering(f.columns, allowed), allowed)
    # Lines of 128 bytes: two slices at a time, where blocks have an even number of them.
    even = bk * size // STAGE_BYTES_K % 2 == 0
    per_copy = fields.pick("slices_per_copy", 2, (1, 2) if even else (1,))
    stage = tile_n * STAGE_BYTES_K
    slot = per_copy * (TILE_M * STAGE_BYTES_K // 2 + PAIRS * pair_bytes(size))

    def memory(stages: int) -> int:
        return stages * stage + (stages if per_copy == 1 else stages // 2 + 1) * slot

    room = SHARED - RESERVED - STORE_BUFFERS
    most = max(s for s in range(1, MOST_STAGES + 1) if memory(s) <= room)
    stages = fields.pick("stages", most, range(2, most + 1))
    similar = fields.pick("group_similar_rows", pays_to_group(f), (0, 1) if rows > 1 else (0,))
    band = fields.pick("raster_band", _BAND if f.density >= _MUCH else 0, (0, 8, 16, 32))
    return Tile(
        tile_n=tile_n,
        step_k=STAGE_BYTES_K // size,
        rows=rows,
        slices=ceil_div(bm, TILE_M),
        group_similar_rows=similar,
        shared_memory=memory(stages) + STORE_BUFFERS + 1024,
        defines={
            "T": ctype(f.dtype),
            "BM": bm,
            "BK": bk,
            "TILE_N": tile_n,
            "STAGES": stages,
            "SLICES_PER_COPY": per_copy,
            "RASTER_BAND": band,
        },
        slice_m=slice_m,
        slices_per_copy=per_copy,
    )


def launches(p: Product, tile: Tile) -> tuple[Launch, ...] | None:
    """Return the launches, or None where tensor maps or 32-bit numbers do not serve.

    What of ``dense`` TMA or wgmma cannot read as it lies is copied to aligned lines
    first, in workspace.
    """
    dense, layout, copies = tensor_core_lines(p.dense, p.data.itemsize != 2)
    if layout == "strided":
        return None
    p = replace(p, dense=dense, layout=layout)
    codes = codes_map(p.meta, p.pattern.blocksize[0], (tile.slices_per_copy * PAIRS, tile.slice_m))
    product = row_group_launches(p, tile, SOURCES[0], (_packed_map(p, tile), codes), DENSE=layout)
    return None if product is None else (*copies, *product)


def _packed_map(p: Product, tile: Tile) -> bytes:
    """Return the map of all packed blocks' rows, one below the other."""
    packed, half = p.data, p.pattern.blocksize[1] // 2
    size, across = packed.itemsize, tile.slices_per_copy * tile.step_k // 2
    return tensor_map(
        packed,
        (tile.slice_m, across),
        across * size,
        shape=(packed.size // half, half),
        strides=(half * size, size),
    )
