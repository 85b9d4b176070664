"""Sampled products at full precision (``common/sampled_full_precision.cuh``): tiles, launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...._math import ceil_div
from ..runtime.architectures import LEAST_SHARED_MEMORY
from ..runtime.launch import Launch, kernel
from ..runtime.types import ctype
from ..runtime.view import matrix_view
from ._facts import INDICES
from ._fields import Fields
from ._full_precision import NARROW
from ._product import layout_of
from ._sampled import Sampled, SampledFacts, pick_split, tiles_of, used
from ._tile import Tile

_ORDERS = ("columns", "vectors", "rows")
BY_ADDRESS = {**INDICES, "MAT1": _ORDERS, "MAT2": (*_ORDERS[1:], _ORDERS[0])}

_MOST_ROWS = 64  # of a tile, unless a configuration says so: smaller tiles are shared more evenly
_SHARED_MEMORY = LEAST_SHARED_MEMORY - 2048  # besides where the columns of a tile begin
_FEWEST_ROWS, _FEWEST_COLUMNS = 4, 16


class Shape(NamedTuple):
    """How a thread block computes a tile.

    ``tile_k`` terms a slice, ``warps_m`` x ``warps_n`` warps; a multiprocessor is to hold
    ``resident`` thread blocks; ``stages`` slices in shared memory; ``thread_m`` rows of a lane, 0
    where fragments say which it has.
    """

    tile_k: int
    warps_m: int
    warps_n: int
    resident: int
    stages: int
    thread_m: int = 0


def pays(f: SampledFacts) -> bool:
    """Return whether rows, and columns of a block row, suffice: few do, as those of a tile."""
    return f.blocksize[0] >= _FEWEST_ROWS and f.row_blocks * f.blocksize[1] >= _FEWEST_COLUMNS


def worth_measuring(f: SampledFacts) -> bool:
    """Return whether `tune` measures it."""
    return f.blocksize[0] >= _FEWEST_ROWS


def full_precision_tile(
    f: SampledFacts,
    fields: Fields,
    tiles: Mapping[int, Mapping[int, Shape]],
    stage_bytes: Callable[[int, int, Shape], int],
    buffer_bytes: Callable[[int, int, Shape], int],
) -> Tile:
    """Return the tile of a product.

    Blocks of more than 64 rows are divided evenly into several tiles.

    Parameters
    ----------
    f : SampledFacts
    fields : Fields
        ``tile_m``, ``tile_n``, ``stages`` and ``split_k``.
    tiles : mapping
        The shapes, by rows and by columns of a tile.
    stage_bytes, buffer_bytes : callable
        Return the shared memory of a stage, and of the staged outputs, by rows, columns and shape.
    """
    bm, bn = f.blocksize
    rows = ceil_div(bm, ceil_div(bm, _MOST_ROWS))
    tile_m = fields.pick("tile_m", next(t for t in tiles if t >= rows), tuple(tiles))
    widths = tuple(tiles[tile_m])
    tile_n = fields.pick("tile_n", _width(f, widths), widths)
    shape = tiles[tile_m][tile_n]
    stage = stage_bytes(tile_m, tile_n, shape)
    least = buffer_bytes(tile_m, tile_n, shape)
    fitting = [s for s in (2, 3, 4, 5) if least <= s * stage <= _SHARED_MEMORY]
    stages = fields.pick("stages", shape.stages, fitting)
    split = pick_split(f, fields, (tile_m, tile_n), shape.tile_k, shape.resident)
    names = {"T": ctype(f.dtype), "BM": bm, "BN": bn, "TILE_M": tile_m, "TILE_N": tile_n}
    of_shape = shape._replace(stages=stages)._asdict()
    names |= {name.upper(): value for name, value in of_shape.items() if value}
    threads = 32 * shape.warps_m * shape.warps_n
    return Tile(tile_m, tile_n, threads, names, stages * stage, split)


def _width(f: SampledFacts, widths: tuple[int, ...]) -> int:
    """Return the columns of the tiles that have least columns, used or not, in a block row.

    The last tile of a block row is half full on average. Narrow tiles load more for a product.
    """
    bn = f.blocksize[1]
    columns = f.row_blocks * bn
    wide = [width for width in widths if width > NARROW or columns <= NARROW]
    return min(wide, key=lambda width: columns / used(bn, width) + width / 2)


def order(operand: Any, extent: int) -> str:
    """Return how an operand is copied (``CopyOrder``): vectors are whole in ``extent`` columns."""
    if layout_of(operand) == "rows" and extent * operand.itemsize % 16 == 0:
        return "vectors"
    return "columns" if abs(operand.strides[-2]) < abs(operand.strides[-1]) else "rows"


def full_precision_launches(
    p: Sampled, tile: Tile, source: str, mat1_order: str
) -> tuple[Launch, ...] | None:
    """Return the launches, None where a grid cannot have so many tiles."""
    tiles = tiles_of(p, tile, source, p.mat1, p.mat2, tile.defines["TILE_K"])
    if tiles is None:
        return None
    orders = {"MAT1": mat1_order, "MAT2": order(p.mat2, p.pattern.blocksize[1])}
    product = Launch(
        kernel(source, **tiles.defines, **tile.defines, **orders),
        (tiles.count,),
        (tile.threads,),
        (
            *tiles.views,
            matrix_view(p.mat1, tiles.batch),
            matrix_view(p.mat2, tiles.batch),
            tiles.batch_argument,
            tiles.problem,
            tiles.epilogue,
        ),
        tile.shared_memory,
    )
    return product, *tiles.after
