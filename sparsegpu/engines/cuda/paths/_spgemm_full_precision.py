"""BSR @ BSR at full precision (``common/pairs_full_precision.cuh``): tiles and launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...._math import ceil_div
from .._grid import grid
from ..runtime.launch import Launch
from ._fields import Fields
from ._pairs_full_precision import Products, Shape, pair_tile, worth_a_tile
from ._spgemm import Spgemm, SpgemmFacts, spgemm_launch, types
from ._tile import Tile


def pays(f: SpgemmFacts) -> bool:
    """Return whether a block's rows and columns fill half of the smallest tile."""
    return worth_a_tile(f.blocksize[0], f.columns)


def full_precision_tile(
    f: SpgemmFacts, fields: Fields, products: Products, shapes: Mapping[tuple[int, int], Shape]
) -> Tile:
    """Return the tile: the smallest that holds a block, up to 64 x 64."""
    chosen = pair_tile(f.sides, fields, products, shapes)
    bm, bk, bn = f.sides
    names = {**types(f), "BM": bm, "BK": bk, "BN": bn, **chosen.defines, "RIGHT": copies(f, bn)}
    return replace(chosen, defines=names)


def copies(f: SpgemmFacts, extent: int) -> str:
    """Return how rows of so many elements are copied (``CopyOrder``)."""
    return "vectors" if f.vectors and extent * f.dtype.itemsize % 16 == 0 else "rows"


def full_precision_launches(p: Spgemm, tile: Tile, source: str) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    tiles = ceil_div(p.a.shape[1], tile.tile_m) * ceil_div(p.b.shape[2], tile.tile_n)
    return spgemm_launch(p, tile, source, grid(p.blocks * tiles))
