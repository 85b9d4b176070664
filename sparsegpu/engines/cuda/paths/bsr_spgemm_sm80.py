"""BSR @ BSR on tensor cores from 8.0 on (``bsr_spgemm_sm80.cu``): bfloat16, float16 and int8.

Fastest where blocks are aligned to 16 bytes, a left block's rows are a whole number of 16-byte
vectors, and a right block's of eight elements: others are copied by element.
"""

from __future__ import annotations

from ...._math import ceil_div
from .._grid import grid
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _spgemm
from ._facts import HALVES, always
from ._fields import Fields
from ._spgemm import PAIRS, Spgemm, SpgemmFacts, spgemm_launch, types
from ._tile import Tile

NAME = "mma"
SOURCES = ("bsr_spgemm_sm80",)
DTYPES, ARCHS = (*HALVES, "int8"), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = PAIRS

_COLUMNS = 8  # of which a right block has a whole number, if it is not copied by element
#: Rows and columns of a block that are worth a tile of sixteen. Copies by element take longer than
#: products: fragments must be full, of terms, too.
_FEWEST, _FEWEST_BY_ELEMENT = 8, 16
_SLICE_BYTES = 64  # of k, that a stage holds
_TILES = (16, 32, 64, 128)
_ALIGNMENT = 128

facts, examples = Spgemm.facts, _spgemm.examples
serves = always


def pays(f: SpgemmFacts) -> bool:
    """Return whether blocks are large enough for tiles of sixteen rows and columns."""
    if not _vectors(f):
        return min(f.sides) >= _FEWEST_BY_ELEMENT
    return min(f.blocksize[0], f.columns) >= _FEWEST


worth_measuring = pays


def tile(f: SpgemmFacts, fields: Fields) -> Tile:
    """Return the tile.

    ``fields`` may say ``tile_m``, ``tile_n`` and ``stages``.

    Examples
    --------
    >>> import numpy as np
    >>> f16 = np.dtype("float16")
    >>> f = SpgemmFacts(dtype=f16, out_dtype=f16, blocksize=(64, 64), columns=64)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.threads, chosen.shared_memory
    (64, 64, 128, 24704)
    """
    bm, _, bn = f.sides
    tile_m = fields.pick("tile_m", _smallest(bm), _TILES)
    tile_n = fields.pick("tile_n", _smallest(bn), _TILES)
    warps_m, warps_n = (2 if t > 32 else 1 for t in (tile_m, tile_n))
    stage = _SLICE_BYTES * (tile_m + tile_n)
    stages = fields.pick("stages", 3, (2, 3, 4))
    return Tile(
        tile_m,
        tile_n,
        32 * warps_m * warps_n,
        {
            **types(f),
            "TILE_M": tile_m,
            "TILE_N": tile_n,
            "WARPS_M": warps_m,
            "WARPS_N": warps_n,
            "STAGES": stages,
            "DATA_VECTORS": int(_vectors(f)),
        },
        stages * stage + _ALIGNMENT,
    )


def _vectors(f: SpgemmFacts) -> bool:
    """Return whether blocks are copied in vectors."""
    _, bk, bn = f.sides
    return f.vectors and bk * f.dtype.itemsize % 16 == 0 and bn % _COLUMNS == 0


def _smallest(side: int) -> int:
    """Return the smallest tile that holds a block's side; two of 64 where blocks are larger."""
    return next((t for t in _TILES[:-1] if t >= side), 64)


def launches(p: Spgemm, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    parts = ceil_div(p.a.shape[1], tile.tile_m) * ceil_div(p.b.shape[2], tile.tile_n)
    return spgemm_launch(p, tile, SOURCES[0], grid(p.blocks * parts))
