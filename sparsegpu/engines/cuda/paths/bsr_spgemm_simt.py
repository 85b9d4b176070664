"""BSR @ BSR without tensor cores (``bsr_spgemm_simt.cu``): every dtype and block size.

The path to read first.
"""

from __future__ import annotations

from ...._math import ceil_div
from .._grid import grid
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _spgemm
from ._facts import FLOATS, always
from ._fields import Fields
from ._simt_tile import simt_tile
from ._spgemm import PAIRS, Spgemm, SpgemmFacts, spgemm_launch, types
from ._tile import Tile

NAME = "simt"
SOURCES = ("bsr_spgemm_simt",)
DTYPES, ARCHS = (*FLOATS, "int8", "complex64", "complex128"), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = PAIRS

facts, examples = Spgemm.facts, _spgemm.examples
pays = serves = worth_measuring = always


def tile(f: SpgemmFacts, fields: Fields) -> Tile:
    """Return the tile: the smallest that holds a block, up to 64 x 64.

    ``fields`` may say ``tile_m`` and ``tile_n``.
    """
    simt = simt_tile(f.blocksize[0], f.columns, fields)
    return Tile(simt.tile_m, simt.tile_n, simt.threads, {**types(f), **simt.defines})


def launches(p: Spgemm, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    parts = ceil_div(p.a.shape[1], tile.tile_m) * ceil_div(p.b.shape[2], tile.tile_n)
    return spgemm_launch(p, tile, SOURCES[0], grid(p.blocks * parts))
