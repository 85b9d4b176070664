"""2:4 @ dense without tensor cores (``semi_structured_addmm_simt.cu``): every dtype and layout."""

from __future__ import annotations

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from ..runtime.types import ctype
from ._facts import HALVES, Facts, always
from ._fields import Fields
from ._product_24 import Product24, tile_launch
from ._tile import Tile

NAME = "simt"
SOURCES = ("semi_structured_addmm_simt",)
DTYPES, ARCHS = (*HALVES, "float32", "int8", "float8_e4m3fn"), PORTABLE
TENSOR_CORES = False
BY_ADDRESS: dict[str, tuple[str, ...]] = {}

_ROWS, _THREADS = 64, 256
_FEW_COLUMNS = 16

facts, pays, serves = Product24.facts, always, always


def tile(f: Facts, fields: Fields) -> Tile:
    """Return the tile; ``fields`` may say ``tile_n``."""
    tile_n = fields.pick("tile_n", 64 if f.columns > _FEW_COLUMNS else 16, (16, 64))
    return Tile(_ROWS, tile_n, _THREADS, {"T": ctype(f.dtype), "TILE_N": tile_n})


def launches(p: Product24, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return (tile_launch(p, tile, SOURCES[0], "SparseSimtProblem", terms=p.packed_columns),)
