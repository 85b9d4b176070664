"""Products of blocks, added where lists say, on tensor cores (``scatter_mm_sm80.cu``).

16-bit floats and int8: blocks of 16 rows and columns or more, rows of a whole number of 16-byte
vectors, aligned to them.
"""

from __future__ import annotations

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from ..runtime.types import ctype
from . import _scatter
from ._facts import HALVES, INDICES, always
from ._fields import Fields
from ._scatter import Scatter, ScatterFacts, pick_group_size, scatter_launch
from ._tile import Tile

NAME = "mma"
SOURCES = ("scatter_mm_sm80",)
DTYPES, ARCHS = (*HALVES, "int8"), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = INDICES

_SMALLEST_BLOCK = 16  # rows and columns that are worth a fragment
_ROWS, _COLUMNS = (16, 32, 64), (32, 64, 128)

facts, examples, epilogues = Scatter.facts, _scatter.examples, _scatter.epilogues
pays = serves = worth_measuring = always


def tile(f: ScatterFacts, fields: Fields) -> Tile | None:
    """Return the tile, the smallest that holds a block product; None where it cannot read blocks.

    ``fields`` may say ``tile_m``, ``tile_n``, ``stages`` and ``group_size``.

    Examples
    --------
    >>> import numpy as np
    >>> f16 = np.dtype("float16")
    >>> f = ScatterFacts(form="pairs", dtype=f16, blocksize=(64, 64), columns=24)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.threads
    (64, 32, 128)
    """
    ms, ks = f.blocksize
    if min(ms, ks) < _SMALLEST_BLOCK or ks * f.dtype.itemsize % 16 or not f.vectors:
        return None
    tile_m = fields.pick("tile_m", _smallest(ms, _ROWS), _ROWS)
    # Few rows leave registers for many columns.
    usual = _smallest(f.columns, _COLUMNS if tile_m == _ROWS[0] else _COLUMNS[:-1])
    tile_n = fields.pick("tile_n", usual, _COLUMNS)
    tile_k = (64 if ks * f.dtype.itemsize % 128 == 0 else 32) * 2 // f.dtype.itemsize
    stages = fields.pick("stages", 3, (2, 3, 4))
    warps_m, warps_n = max(tile_m // 32, 1), 2
    names = {
        "FORMAT": f.form,
        "T": ctype(f.dtype),
        "KS": ks,
        "TILE_M": tile_m,
        "TILE_N": tile_n,
        "WARPS_M": warps_m,
        "WARPS_N": warps_n,
        "TILE_K": tile_k,
        "STAGES": stages,
        "GROUP_SIZE": pick_group_size(f, fields, tile_m),
    }
    shared_memory = stages * (tile_m + tile_n) * tile_k * f.dtype.itemsize
    return Tile(tile_m, tile_n, 32 * warps_m * warps_n, names, shared_memory)


def _smallest(side: int, tiles: tuple[int, ...]) -> int:
    """Return the smallest tile that holds a side, the largest where none does."""
    return next((t for t in tiles if t >= side), tiles[-1])


def launches(p: Scatter, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return scatter_launch(p, tile, SOURCES[0])
