"""Dense @ dense of float32 at the stored blocks, at IEEE precision (``bsr_sampled_addmm_f32.cu``).

Blocks that follow each other in a block row share a tile. Matrices are read as they lie, with any
strides.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...._math import ceil_div
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch, kernel
from ..runtime.types import ctype
from ..runtime.view import matrix_view
from . import _sampled
from ._facts import INDICES, always
from ._fields import Fields
from ._full_precision import NARROW
from ._product import layout_of
from ._sampled import Sampled, SampledFacts, pick_split, tiles_of, used
from ._tile import Tile

NAME = "fma"
SOURCES = ("bsr_sampled_addmm_f32",)
DTYPES, ARCHS = ("float32",), PORTABLE
TENSOR_CORES = False
_ORDERS = ("columns", "vectors", "rows")
BY_ADDRESS = {**INDICES, "MAT1": _ORDERS, "MAT2": (*_ORDERS[1:], _ORDERS[0])}

facts, examples, epilogues = Sampled.facts, _sampled.examples, _sampled.epilogues
serves = always


class _Shape(NamedTuple):
    """How a thread block computes a tile: what a lane, a warp, a slice and a multiprocessor have.

    ``tile_k`` terms a slice, ``warps_m`` x ``warps_n`` warps, ``thread_m`` rows of a lane; a
    multiprocessor is to hold ``resident`` thread blocks.
    """

    tile_k: int
    warps_m: int
    warps_n: int
    thread_m: int
    resident: int


#: By rows and by columns of a tile. A lane has 4 or 8 x 8 of its outputs, 12 x 8 where rows are a
#: multiple of 24, 8 x 16 of wide warps: each of the multiply-adds of a term then needs 1/11 to 1/21
#: of a 16-byte load.
_TILES: dict[int, dict[int, _Shape]] = {
    16: {64: _Shape(16, 1, 1, 4, 12), 128: _Shape(8, 1, 1, 8, 12), 256: _Shape(8, 1, 2, 8, 6)},
    24: {128: _Shape(8, 1, 1, 12, 8), 256: _Shape(8, 1, 2, 12, 4)},
    32: {64: _Shape(16, 1, 1, 8, 12), 128: _Shape(8, 1, 1, 8, 8), 256: _Shape(8, 1, 2, 8, 4)},
    48: {128: _Shape(16, 1, 2, 12, 4), 256: _Shape(16, 1, 4, 12, 2)},
    64: {64: _Shape(16, 2, 1, 8, 6), 128: _Shape(16, 2, 1, 8, 4), 256: _Shape(16, 2, 2, 8, 2)},
    128: {128: _Shape(16, 2, 2, 8, 2)},
}
_MOST_ROWS = 64  # of a tile, unless a configuration says so: smaller tiles are shared more evenly
_STAGES = 3
#: Dynamic shared memory that every GPU from compute capability 8.0 on offers a thread block,
#: besides where the columns of a tile begin.
_SHARED_MEMORY = 97 * 1024
_FEWEST_ROWS, _FEWEST_COLUMNS = 4, 16


def pays(f: SampledFacts) -> bool:
    """Return whether rows, and columns of a block row, suffice: few do, as those of a tile."""
    return f.blocksize[0] >= _FEWEST_ROWS and f.row_blocks * f.blocksize[1] >= _FEWEST_COLUMNS


def worth_measuring(f: SampledFacts) -> bool:
    """Return whether `tune` measures it."""
    return f.blocksize[0] >= _FEWEST_ROWS


def tile(f: SampledFacts, fields: Fields) -> Tile:
    """Return the tile.

    ``fields`` may say ``tile_m``, ``tile_n``, ``stages`` and ``split_k``.

    Examples
    --------
    >>> import numpy as np
    >>> f = SampledFacts(
    ...     dtype=np.dtype("float32"), shape=(8192, 1024, 8192), blocksize=(64, 64), row_blocks=13.0
    ... )
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.threads
    (64, 128, 64)
    """
    bm, bn = f.blocksize
    rows = ceil_div(bm, ceil_div(bm, _MOST_ROWS))
    tile_m = fields.pick("tile_m", next(t for t in _TILES if t >= rows), tuple(_TILES))
    shapes = _TILES[tile_m]
    tile_n = fields.pick("tile_n", _width(f, tuple(shapes)), tuple(shapes))
    shape = shapes[tile_n]
    warps = shape.warps_m * shape.warps_n
    stage = shape.tile_k * (tile_m + 4 + tile_n + 4) * 4
    # Of the staged outputs: four rows of every lane.
    buffers = 4 * tile_m // shape.thread_m * (tile_n + 4 * shape.warps_n) * 4
    fitting = [s for s in (2, 3, 4, 5) if buffers <= s * stage <= _SHARED_MEMORY]
    stages = fields.pick("stages", _STAGES, fitting)
    split = pick_split(f, fields, (tile_m, tile_n), shape.tile_k, shape.resident)
    names = {name.upper(): value for name, value in shape._asdict().items()}
    of_blocks = {"T": ctype(f.dtype), "BM": bm, "BN": bn, "TILE_M": tile_m, "TILE_N": tile_n}
    return Tile(
        tile_m, tile_n, 32 * warps, {**of_blocks, **names, "STAGES": stages}, stages * stage, split
    )


def _width(f: SampledFacts, widths: tuple[int, ...]) -> int:
    """Return the columns of the tiles that have least columns, used or not, in a block row.

    The last tile of a block row is half full on average. Narrow tiles load more for a product.
    """
    bn = f.blocksize[1]
    columns = f.row_blocks * bn
    wide = [width for width in widths if width > NARROW or columns <= NARROW]
    return min(wide, key=lambda width: columns / used(bn, width) + width / 2)


def _order(operand: Any, extent: int) -> str:
    """Return how (*B, K, lines) are copied, whose blocks have ``extent`` lines (``CopyOrder``)."""
    if layout_of(operand) == "rows" and extent * operand.itemsize % 16 == 0:
        return "vectors"
    return "columns" if abs(operand.strides[-2]) < abs(operand.strides[-1]) else "rows"


def launches(p: Sampled, tile: Tile) -> tuple[Launch, ...] | None:
    """Return the launches, None where a grid cannot have so many tiles."""
    tiles = tiles_of(p, tile, SOURCES[0], p.mat1, p.mat2, tile.defines["TILE_K"])
    if tiles is None:
        return None
    bm, bn = p.pattern.blocksize
    orders = {"MAT1": _order(p.mat1.swapaxes(-1, -2), bm), "MAT2": _order(p.mat2, bn)}
    product = Launch(
        kernel(SOURCES[0], **tiles.defines, **tile.defines, **orders),
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
