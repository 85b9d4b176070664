"""BSR @ few columns on tensor cores (``bsr_addmm_skinny.cu``): 16-bit operands, N up to 128."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ...._math import ceil_div
from .._kernel_source import Defines
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from ..runtime.types import ctype
from . import _skinny
from ._facts import HALVES, Facts
from ._fields import Fields
from ._product import Product
from ._skinny import MOST_COLUMNS, clusters_pay, has_few_columns, skinny_launch, suits_clusters

NAME = "skinny"
SOURCES = ("bsr_addmm_skinny",)
DTYPES, ARCHS = HALVES, PORTABLE
TENSOR_CORES = True
BY_ADDRESS = _skinny.BY_ADDRESS

_STEP = 32  # terms of a warp's step
_TILE_ROWS = 64  # of the paths for more columns
_FRAGMENT = 16  # columns
_LONG_ROW = 512  # terms

facts, serves = Product.facts, _skinny.serves


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of a thread block, and the stages of its warps' pipelines.

    ``tile_m`` x ``tile_n`` outputs; ``warps_k`` warps split the terms, ``warps_n`` the columns.
    """

    tile_m: int
    tile_n: int
    warps_k: int
    warps_n: int
    shared_memory: int
    defines: dict[str, Any]


def pays(f: Facts) -> bool:
    """Return whether rows are few, or long where columns are few.

    The warps of a thread block share the terms of its rows. With a tile of 64 rows for each
    multiprocessor the other paths keep it busy, too, and were measured 1.3 to 5 times as fast.
    """
    few_rows = f.shape[0] < _TILE_ROWS * f.multiprocessors
    return few_rows or (f.columns <= _FRAGMENT and f.row_blocks * f.blocksize[1] >= _LONG_ROW)


def worth_measuring(f: Facts) -> bool:
    """Return whether `tune` measures it: not where clusters of thread blocks are faster."""
    return not (suits_clusters(f) and clusters_pay(f))


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return the tile: the tallest that gives every multiprocessor one; each reads ``dense`` again.

    ``fields`` may say ``tile_m``, ``tile_n``, ``warps_k`` and ``stages``.

    Examples
    --------
    >>> import numpy as np
    >>> f16, shape = np.dtype("float16"), (4096, 4096, 64)
    >>> chosen = tile(Facts(dtype=f16, shape=shape, blocksize=(64, 64)), Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.warps_k, chosen.warps_n, chosen.defines["STAGES"]
    (32, 64, 8, 2, 3)
    """
    bm, bk = f.blocksize
    if not has_few_columns(f) or bm < 8 or bk % 8:
        return None
    tile_n = next((n for n in (16, 32, 64) if n >= f.columns), MOST_COLUMNS)
    tallest = 64 if tile_n <= 64 else 32
    tile_m = 16
    while tile_m < min(bm, tallest) and f.shape[0] // (2 * tile_m) * 10 >= f.multiprocessors * 9:
        tile_m *= 2
    # A warp has at most 32 columns; wider tiles have more warps.
    halves = max(tile_n // 32, 1)
    for warps_k, stages in ((16 // halves, 3), (16 // halves, 2), (4, 2), (2, 2)):
        warps_k = min(warps_k, 8)
        if _shared_memory(f.layout, tile_m, tile_n, warps_k, stages) <= f.shared_memory:
            break

    tile_m = fields.pick("tile_m", tile_m, (16, 32, 64))
    # Sums of 64 x 32 outputs are 64 registers of a lane; more columns have more warps.
    tile_n = fields.pick("tile_n", tile_n, (16, 32, 64, 128))
    warps_n = max(tile_n // 32, 1)

    def has_room(warps_k: int, stages: int) -> bool:
        return _shared_memory(f.layout, tile_m, tile_n, warps_k, stages) <= f.shared_memory

    few = [w for w in (1, 2, 4, 8) if w * warps_n <= 16 and has_room(w, 2)]
    warps_k = fields.pick("warps_k", warps_k, few)
    stages = fields.pick("stages", stages, [s for s in (2, 3, 4) if has_room(warps_k, s)])
    names = {
        "T": ctype(f.dtype),
        "BM": bm,
        "BK": bk,
        "TILE_M": tile_m,
        "TILE_N": tile_n,
        "WARPS_K": warps_k,
        "WARPS_N": warps_n,
        "STAGES": stages,
        "DENSE": f.layout,
    }
    memory = _shared_memory(f.layout, tile_m, tile_n, warps_k, stages)
    return Tile(tile_m, tile_n, warps_k, warps_n, memory, names)


def fits(defines: Defines, shared_memory: int) -> bool:
    """Return whether a thread block of a tile's ``-D`` names needs no more shared memory."""
    names = ("DENSE", "TILE_M", "TILE_N", "WARPS_K", "STAGES")
    return _shared_memory(*(defines[name] for name in names)) <= shared_memory


def _shared_memory(layout: str, tile_m: int, tile_n: int, warps_k: int, stages: int) -> int:
    """Return the dynamic shared memory of a thread block, in bytes."""
    warps_n = max(tile_n // 32, 1)
    warp_n = tile_n // warps_n
    right = _STEP * (2 * warp_n + 16) if layout == "rows" else warp_n * 2 * _STEP
    pipeline = stages * (tile_m * 2 * _STEP + right)
    return warps_k * warps_n * max(pipeline, tile_m * (warp_n + 8) * 4)


def launches(p: Product, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    block_rows = p.pattern.block_shape[0]
    row_tiles = prod(p.batch) * block_rows * ceil_div(p.pattern.blocksize[0], tile.tile_m)
    product = skinny_launch(
        p,
        tile,
        SOURCES[0],
        ARCHS,
        (row_tiles, ceil_div(p.out.shape[-1], tile.tile_n)),
        32 * tile.warps_k * tile.warps_n,
        p.pattern._indptr,
        row_tiles=row_tiles,
        block_rows=block_rows,
    )
    return (product,)
