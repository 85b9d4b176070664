"""BSR @ BSR at full precision (``common/pairs_full_precision.cuh``): tiles and launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...._math import ceil_div
from .._grid import grid
from ..runtime.architectures import LEAST_SHARED_MEMORY
from ..runtime.launch import Launch
from ._fields import Fields
from ._full_precision import terms_of_slice
from ._spgemm import Spgemm, SpgemmFacts, spgemm_launch, types
from ._tile import Tile

_SIDES = (16, 32, 64)
_MOST_TERMS = 16  # of a slice
_FEWEST = 8  # rows and columns of a block that are worth a tile of sixteen


class Shape(NamedTuple):
    """How a thread block computes a tile.

    By ``warps_m`` x ``warps_n`` warps; a multiprocessor is to hold ``resident`` thread blocks;
    ``stages`` slices in shared memory. Of multiply-adds also ``thread_m`` rows of a lane, and
    ``teams`` of lanes that share the terms.
    """

    warps_m: int
    warps_n: int
    resident: int
    stages: int
    thread_m: int = 0
    teams: int = 0


def pays(f: SpgemmFacts) -> bool:
    """Return whether a block's rows and columns fill half of the smallest tile."""
    return min(f.blocksize[0], f.columns) >= _FEWEST


def full_precision_tile(
    f: SpgemmFacts,
    fields: Fields,
    shapes: Mapping[tuple[int, int], Shape],
    step: int,
    stage_bytes: Callable[[int, int, int], int],
    part_rows: Callable[[int, Shape], int],
) -> Tile:
    """Return the tile: the smallest that holds a block, up to 64 x 64.

    Parameters
    ----------
    f : SpgemmFacts
    fields : Fields
        ``tile_m``, ``tile_n`` and ``stages``.
    shapes : mapping
        By rows and columns of a tile.
    step : int
        Terms that are multiplied at once.
    stage_bytes : callable
        Returns the shared memory of a stage, by rows, columns and terms.
    part_rows : callable
        Returns how many of a warp's rows are staged at once, by rows of a tile and shape.
    """
    bm, bk, bn = f.sides
    tile_m = fields.pick("tile_m", _smallest(bm), _SIDES)
    tile_n = fields.pick("tile_n", _smallest(bn), _SIDES)
    tile_k = terms_of_slice(bk, step, _MOST_TERMS)
    shape = shapes[tile_m, tile_n]
    stage = stage_bytes(tile_m, tile_n, tile_k)
    fitting = [s for s in (2, 3, 4) if s * stage <= LEAST_SHARED_MEMORY]
    stages = fields.pick("stages", shape.stages, fitting)
    of_shape = shape._replace(stages=stages)._asdict()
    pitch = tile_n * f.dtype.itemsize + 16 * shape.warps_n  # of all warps beside each other
    staged = shape.warps_m * part_rows(tile_m, shape) * pitch
    names = {**types(f), "BM": bm, "BK": bk, "BN": bn, "TILE_M": tile_m, "TILE_N": tile_n}
    names["TILE_K"] = tile_k
    names |= {name.upper(): value for name, value in of_shape.items() if value}
    names["RIGHT"] = copies(f, bn)
    threads = 32 * shape.warps_m * shape.warps_n
    return Tile(tile_m, tile_n, threads, names, max(stages * stage, staged))


def copies(f: SpgemmFacts, extent: int) -> str:
    """Return how rows of so many elements are copied (``CopyOrder``)."""
    return "vectors" if f.vectors and extent * f.dtype.itemsize % 16 == 0 else "rows"


def full_precision_launches(p: Spgemm, tile: Tile, source: str) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    tiles = ceil_div(p.a.shape[1], tile.tile_m) * ceil_div(p.b.shape[2], tile.tile_n)
    return spgemm_launch(p, tile, source, grid(p.blocks * tiles))


def _smallest(side: int) -> int:
    return next((t for t in _SIDES if t >= side), _SIDES[-1])
