"""BSR @ dense without tensor cores (``bsr_addmm_simt.cu``): every dtype, block size and stride.

The path to read first.
"""

from __future__ import annotations

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from ..runtime.types import ctype
from ._block_row_product import block_row_launch
from ._facts import FLOATS, INDICES, Facts, always
from ._fields import Fields
from ._product import Product
from ._simt_tile import simt_tile
from ._tile import Tile

NAME = "simt"
SOURCES = ("bsr_addmm_simt",)
DTYPES, ARCHS = (*FLOATS, "int8", "complex64", "complex128"), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = INDICES

_TENSOR_CORES_FROM = 16  # rows of a block, and columns: with fewer, half a tile is wasted

facts, pays, serves = Product.facts, always, always


def worth_measuring(f: Facts) -> bool:
    """Return whether `tune` measures it: where tensor cores would be mostly idle."""
    few = min(f.blocksize[0], f.columns) < _TENSOR_CORES_FROM
    return few or f.dtype.name.startswith("complex")


def tile(f: Facts, fields: Fields) -> Tile:
    """Return the tile: the smallest that holds a block's rows, up to 64 x 64.

    ``fields`` may say ``tile_m`` and ``tile_n``.
    """
    simt = simt_tile(f.blocksize[0], f.columns, fields)
    names = {"T": ctype(f.dtype), "TRANSPOSED": int(f.transposed), **simt.defines}
    return Tile(simt.tile_m, simt.tile_n, simt.threads, names)


def launches(p: Product, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return (block_row_launch(p, tile, SOURCES[0]),)
