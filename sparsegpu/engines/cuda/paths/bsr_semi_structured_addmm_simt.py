"""BSR of 2:4 blocks @ dense in plain code (``bsr_semi_structured_addmm_simt.cu``): any of them."""

from __future__ import annotations

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from ..runtime.types import ctype
from ._block_row_product import block_row_launch
from ._facts import HALVES, INDICES, Facts, always
from ._fields import Fields
from ._product import Product
from ._tile import Tile

NAME = "simt"
SOURCES = ("bsr_semi_structured_addmm_simt",)
DTYPES, ARCHS = (*HALVES, "int8", "float32"), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = INDICES

_ROWS, _THREADS = 32, 128
_FEW_COLUMNS = 16

facts, pays, serves = Product.facts, always, always


def tile(f: Facts, fields: Fields) -> Tile:
    """Return the tile; ``fields`` may say ``tile_n``."""
    tile_n = fields.pick("tile_n", 64 if f.columns > _FEW_COLUMNS else 16, (16, 64))
    return Tile(_ROWS, tile_n, _THREADS, {"T": ctype(f.dtype), "TILE_N": tile_n})


def launches(p: Product, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return (block_row_launch(p, tile, SOURCES[0]),)
