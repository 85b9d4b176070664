"""Tiles of products of pairs of blocks at full precision: sparse times sparse, scattered products.

The kernels are those of ``common/pairs_full_precision.cuh`` and
``common/scatter_full_precision.cuh``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..runtime.architectures import LEAST_SHARED_MEMORY
from ._fields import Fields
from ._full_precision import terms_of_slice
from ._tile import Tile

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


class Products(NamedTuple):
    """How the warps of a kernel multiply.

    Attributes
    ----------
    itemsize : int
    step : int
        Terms that are multiplied at once.
    stage_bytes : callable
        Returns the shared memory of a stage, by rows, columns and terms.
    part_rows : callable
        Returns how many of a warp's rows are staged at once, by rows of a tile and shape.
    """

    itemsize: int
    step: int
    stage_bytes: Callable[[int, int, int], int]
    part_rows: Callable[[int, Shape], int]


def _stage_of_fma(tile_m: int, tile_n: int, tile_k: int) -> int:
    return tile_k * (tile_m + 4 + tile_n + 4) * 4


def _rows_of_fma(tile_m: int, s: Shape) -> int:
    """Return four rows of every lane."""
    return 4 * tile_m // s.warps_m // s.thread_m


def _stage_of_mma(tile_m: int, tile_n: int, tile_k: int) -> int:
    padded = tile_k + (8 if tile_k % 16 == 0 else 0)
    return (tile_m * padded + tile_k * (tile_n + 2)) * 8


#: Float32 by multiply-adds (``common/warp_fma.cuh``).
FMA = Products(4, 4, _stage_of_fma, _rows_of_fma)
#: Float64 on tensor cores (``common/warp_mma_f64.cuh``).
MMA_F64 = Products(8, 8, _stage_of_mma, lambda *_: 8)

#: By rows and columns of a tile of float32. Sixteen lanes have enough outputs of 16 x 16.
FMA_SHAPES = {
    (16, 16): Shape(1, 1, 16, 3, 4, 2),
    (16, 32): Shape(1, 1, 16, 3, 4, 1),
    (16, 64): Shape(1, 1, 12, 3, 4, 1),
    (32, 16): Shape(1, 1, 16, 3, 4, 1),
    (32, 32): Shape(1, 1, 20, 2, 8, 1),
    (32, 64): Shape(1, 2, 8, 3, 8, 1),
    (64, 16): Shape(1, 1, 12, 3, 8, 1),
    (64, 32): Shape(2, 1, 8, 3, 8, 1),
    (64, 64): Shape(2, 2, 5, 2, 8, 1),
}
#: The same of float64.
MMA_F64_SHAPES = {
    (16, 16): Shape(1, 1, 8, 2),
    (16, 32): Shape(1, 1, 8, 2),
    (16, 64): Shape(1, 2, 6, 2),
    (32, 16): Shape(1, 1, 8, 2),
    (32, 32): Shape(1, 2, 6, 2),
    (32, 64): Shape(1, 2, 4, 3),
    (64, 16): Shape(2, 1, 6, 2),
    (64, 32): Shape(2, 1, 4, 3),
    (64, 64): Shape(2, 2, 2, 3),
}


def worth_a_tile(rows: int, columns: int) -> bool:
    """Return whether a block's rows and columns fill half of the smallest tile."""
    return min(rows, columns) >= _FEWEST


def pair_tile(
    sides: tuple[int, int, int],
    fields: Fields,
    products: Products,
    shapes: Mapping[tuple[int, int], Shape],
) -> Tile:
    """Return the tile: the smallest of the shapes that holds a block, the largest if none does.

    Parameters
    ----------
    sides : (int, int, int)
        Rows and columns of a left block, columns of a right one.
    fields : Fields
        ``tile_m``, ``tile_n`` and ``stages``.
    products : Products
    shapes : mapping
        By rows and columns of a tile.
    """
    bm, bk, bn = sides
    heights = tuple(sorted({m for m, _ in shapes}))
    tile_m = fields.pick("tile_m", _smallest(bm, heights), heights)
    widths = tuple(sorted(n for m, n in shapes if m == tile_m))
    tile_n = fields.pick("tile_n", _smallest(bn, widths), widths)
    tile_k = terms_of_slice(bk, products.step, _MOST_TERMS)
    shape = shapes[tile_m, tile_n]
    stage = products.stage_bytes(tile_m, tile_n, tile_k)
    fitting = [s for s in (2, 3, 4) if s * stage <= LEAST_SHARED_MEMORY]
    stages = fields.pick("stages", shape.stages, fitting)
    of_shape = shape._replace(stages=stages)._asdict()
    size = products.itemsize
    pitch = tile_n * size + 16 * shape.warps_n  # of all warps beside each other
    staged = shape.warps_m * products.part_rows(tile_m, shape) * pitch
    names = {"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k}
    names |= {name.upper(): value for name, value in of_shape.items() if value}
    threads = 32 * shape.warps_m * shape.warps_n
    return Tile(tile_m, tile_n, threads, names, max(stages * stage, staged))


def _smallest(side: int, tiles: tuple[int, ...]) -> int:
    return next((t for t in tiles if t >= side), tiles[-1])
