"""BSR @ dense of float32 at IEEE precision (``bsr_addmm_f32.cu``)."""

from __future__ import annotations

from dataclasses import replace

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from ._block_row_product import block_row_launch
from ._facts import INDICES, Facts, always
from ._fields import Fields
from ._full_precision import NARROW, Shape, full_precision_tile, terms_of_slice
from ._product import Product
from ._tile import Tile

NAME = "fma"
SOURCES = ("bsr_addmm_f32",)
DTYPES, ARCHS = ("float32",), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = INDICES

_RASTER = 1024  # row tiles that are taken before the next column tile
_FEWEST_ROWS, _FEWEST_COLUMNS, _WORTH = 3, 8, 4
_MANY_ROWS, _MANY_COLUMNS = 17, 32  # with which any number of the others suffices
_FEW_ROWS = 8  # that every lane has all of
_FEWEST_OF_NARROW = 3  # rows; a narrow tile has sixteen, of which fewer would be used
#: Tiles of 64 columns: rows, rows of a lane, warps by rows and resident thread blocks.
_NARROW_TILES = ((16, 4, 1, 12), (32, 8, 1, 12), (64, 8, 2, 6))
#: Of 256: rows, rows of a lane, and warps by rows and by columns and resident thread blocks, for
#: operands in 16-byte vectors and in single elements, whose addresses need registers.
_WIDE_TILES = (
    (16, 8, (1, 2, 6), (1, 2, 4)),
    (24, 12, (1, 2, 4), (1, 2, 2)),
    (32, 8, (1, 2, 4), (1, 4, 2)),
    (48, 12, (1, 4, 2), (1, 4, 1)),
    (64, 8, (2, 2, 2), (2, 2, 2)),
)
#: Terms of a short slice, by rows of a wide tile: products start sooner, and L1 caches more.
_SHORT = {16: 8, 24: 12, 32: 8, 48: 16, 64: 16}

facts, serves = Product.facts, always


def pays(f: Facts) -> bool:
    """Return whether rows and columns suffice: few do, since the SIMT kernel is slow, too."""
    rows, columns = f.blocksize[0], f.columns
    few = rows >= _FEWEST_ROWS and (columns >= _FEWEST_COLUMNS or rows >= _MANY_ROWS)
    return few or columns >= _MANY_COLUMNS


def worth_measuring(f: Facts) -> bool:
    """Return whether `tune` measures it."""
    return min(f.blocksize[0], f.columns) >= _WORTH


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return the tile; None where float32 may be rounded to TF32, which is faster.

    ``fields`` may say ``tile_n``, ``stages`` and ``resident``.

    Examples
    --------
    >>> import numpy as np
    >>> f = Facts(dtype=np.dtype("float32"), shape=(4096, 4096, 4096), blocksize=(128, 128))
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.defines["TILE_K"], chosen.threads
    (64, 256, 16, 128)
    """
    if f.allow_tf32:
        return None
    found = full_precision_tile(f, fields, _shape, _stage_bytes, _buffer_bytes)
    return replace(found, defines={**found.defines, "THREAD_M": _rows_of_lane(found)})


def _shape(rows: int, bk: int, narrow: bool, vectors: bool) -> Shape:
    tile_k = terms_of_slice(bk, 4, 32)
    if narrow and rows >= _FEWEST_OF_NARROW:
        tile_m, _, warps_m, resident = next(t for t in _NARROW_TILES if t[0] >= rows)
        resident = resident if vectors else resident * 2 // 3
        return Shape(tile_m, NARROW, tile_k, warps_m, 1, resident, stages=2)
    if rows <= _FEW_ROWS:
        return Shape(rows, 128, tile_k, 1, 1, resident=12, stages=2)
    tile_m, _, by_vectors, by_elements = next(t for t in _WIDE_TILES if t[0] >= rows)
    if not vectors:
        return Shape(tile_m, 256 if tile_m < 64 else 128, tile_k, *by_elements, stages=2)
    short = _SHORT[tile_m]
    tile_k, stages = (tile_k, 2) if bk % short else (short, 3)
    return Shape(tile_m, 256, tile_k, *by_vectors, stages=stages)


def _rows_of_lane(s: Shape | Tile) -> int:
    """Return how many rows of a tile belong to a lane."""
    if s.tile_n == 128 and s.tile_m <= _FEW_ROWS:
        return s.tile_m
    tiles = _NARROW_TILES if s.tile_n == NARROW else _WIDE_TILES
    return next(t[1] for t in tiles if t[0] == s.tile_m)


def _stage_bytes(s: Shape) -> int:
    right = (s.tile_n + 4) * 4
    if s.tile_m // s.warps_m > _rows_of_lane(s):
        return s.tile_k * ((s.tile_m + 4) * 4 + right)
    return s.tile_m * (s.tile_k // 4 | 1) * 16 + s.tile_k * right


def _buffer_bytes(s: Shape) -> int:
    thread_m = _rows_of_lane(s)
    lanes_m = s.tile_m // s.warps_m // thread_m
    rows = 4 * lanes_m if lanes_m > 1 else thread_m
    return s.warps_m * rows * (s.tile_n * 4 + 16 * s.warps_n)


def launches(p: Product, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return (block_row_launch(p, tile, SOURCES[0], raster=_RASTER),)
