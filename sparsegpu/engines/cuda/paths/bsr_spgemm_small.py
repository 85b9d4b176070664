"""BSR @ BSR of small blocks, a thread for each element (``bsr_spgemm_small.cu``): every dtype."""

from __future__ import annotations

from ...._math import ceil_div
from .._grid import grid
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _spgemm
from ._facts import FLOATS, always
from ._fields import Fields
from ._spgemm import PAIRS, Spgemm, SpgemmFacts, spgemm_launch, types
from ._tile import Tile

NAME = "small"
SOURCES = ("bsr_spgemm_small",)
DTYPES, ARCHS = (*FLOATS, "int8", "complex64", "complex128"), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = PAIRS

_LARGEST, _THREADS = 8, 256

facts, examples = Spgemm.facts, _spgemm.examples
serves = worth_measuring = always


def pays(f: SpgemmFacts) -> bool:
    """Return whether a thread block for each block of the result would be mostly idle."""
    return max(f.sides) <= _LARGEST


def tile(f: SpgemmFacts, fields: Fields) -> Tile | None:
    """Return the tile, None for blocks of more than 8 rows or columns."""
    bm, bk, bn = f.sides
    if max(bm, bk, bn) > _LARGEST:
        return None
    return Tile(bm, bn, _THREADS, {**types(f), "BM": bm, "BK": bk, "BN": bn})


def launches(p: Spgemm, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    blocks = _THREADS // (tile.tile_m * tile.tile_n)
    return spgemm_launch(p, tile, SOURCES[0], grid(ceil_div(p.blocks, blocks)))
