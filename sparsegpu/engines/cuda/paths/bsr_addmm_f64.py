"""BSR @ dense of float64 on tensor cores (``bsr_addmm_f64.cu``)."""

from __future__ import annotations

from ...._math import ceil_div
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from ._block_row_product import block_row_launch
from ._facts import INDICES, Facts, always
from ._fields import Fields
from ._full_precision import NARROW, Shape, full_precision_tile, terms_of_slice
from ._product import Product
from ._tile import Tile

NAME = "mma_f64"
SOURCES = ("bsr_addmm_f64",)
DTYPES, ARCHS = ("float64",), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = INDICES

_RASTER = 768  # row tiles that are taken before the next column tile
_FEWEST_ROWS = 4  # and columns of a block
_MANY_COLUMNS = 24  # of dense, with which two rows suffice

facts, serves = Product.facts, always


def pays(f: Facts) -> bool:
    """Return whether fragments are full enough: half do, since the SIMT kernel is slow, too."""
    bm, bk = f.blocksize
    return min(bm, bk) >= _FEWEST_ROWS or (bm > 1 and f.columns >= _MANY_COLUMNS)


def worth_measuring(f: Facts) -> bool:
    """Return whether `tune` measures it."""
    return min(f.blocksize[0], f.columns) >= _FEWEST_ROWS


def tile(f: Facts, fields: Fields) -> Tile:
    """Return the tile; ``fields`` may say ``tile_n``, ``stages`` and ``resident``.

    Examples
    --------
    >>> import numpy as np
    >>> f = Facts(dtype=np.dtype("float64"), shape=(4600, 4600, 4096), blocksize=(23, 23))
    >>> tile(f, Fields()).tile_m
    24
    """
    return full_precision_tile(f, fields, _shape, _stage_bytes, _buffer_bytes)


def _shape(rows: int, bk: int, narrow: bool, vectors: bool) -> Shape:
    tile_m, tile_k = ceil_div(rows, 8) * 8, terms_of_slice(bk, 8, 24)
    if narrow or not vectors:
        return Shape(tile_m, NARROW, tile_k, 1, 2, resident=4, stages=2)
    if tile_m <= 32:
        return Shape(tile_m, 128, tile_k, 1, 2, resident=4, stages=2 if tile_m > 16 else 3)
    return Shape(tile_m, 128, tile_k, 1, 4, resident=2, stages=3)


def _stage_bytes(s: Shape) -> int:
    left, right = s.tile_k + (8 if s.tile_k % 16 == 0 else 0), s.tile_n + 2
    return (s.tile_m * left + s.tile_k * right) * 8


def _buffer_bytes(s: Shape) -> int:
    return s.warps_m * 8 * (s.tile_n * 8 + 16 * s.warps_n)


def launches(p: Product, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return (block_row_launch(p, tile, SOURCES[0], raster=_RASTER),)
