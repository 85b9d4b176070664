"""Scattered products at full precision (``common/scatter_full_precision.cuh``): tiles, launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..runtime.launch import Launch
from ..runtime.types import ctype
from ._facts import INDICES
from ._fields import Fields
from ._pairs_full_precision import Products, Shape, pair_tile, worth_a_tile
from ._sampled_full_precision import order
from ._scatter import Scatter, ScatterFacts, pick_group_size, scatter_launch
from ._tile import Tile

_ORDERS = ("vectors", "rows", "columns")
BY_ADDRESS = {**INDICES, "BLOCKS": _ORDERS, "OTHERS": _ORDERS}


def pays(f: ScatterFacts) -> bool:
    """Return whether the rows and columns of a product fill half of the smallest tile."""
    return worth_a_tile(f.blocksize[0], f.columns)


def full_precision_tile(
    f: ScatterFacts, fields: Fields, products: Products, shapes: Mapping[tuple[int, int], Shape]
) -> Tile:
    """Return the tile: the smallest that holds a block product, the largest if none does."""
    chosen = pair_tile((*f.blocksize, f.columns), fields, products, shapes)
    group = pick_group_size(f, fields, chosen.tile_m)
    names = {"FORMAT": f.form, "T": ctype(f.dtype), "KS": f.blocksize[1], **chosen.defines}
    return replace(chosen, defines={**names, "GROUP_SIZE": group})


def full_precision_launches(
    p: Scatter, tile: Tile, source: str, order_of_blocks: str
) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    orders = {"BLOCKS": order_of_blocks, "OTHERS": order(p.others, p.columns)}
    return scatter_launch(p, replace(tile, defines={**tile.defines, **orders}), source)
