"""BSR @ BSR of small float64 blocks on tensor cores (``bsr_spgemm_f64.cu``)."""

from __future__ import annotations

from ...._math import ceil_div
from .._grid import grid
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _spgemm
from ._facts import always
from ._fields import Fields
from ._spgemm import PAIRS, Spgemm, SpgemmFacts, spgemm_launch, types
from ._tile import Tile

NAME = "mma_f64"
SOURCES = ("bsr_spgemm_f64",)
DTYPES, ARCHS = ("float64",), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = PAIRS

_LARGEST, _WARPS = 8, 4

facts, examples = Spgemm.facts, _spgemm.examples
serves = worth_measuring = always


def pays(f: SpgemmFacts) -> bool:
    """Return whether blocks are of a size at which it was measured to be the fastest."""
    return max(f.sides) >= 3


def tile(f: SpgemmFacts, fields: Fields) -> Tile | None:
    """Return the tile, None for blocks of more than 8 rows or columns.

    Examples
    --------
    >>> import numpy as np
    >>> f64 = np.dtype("float64")
    >>> f = SpgemmFacts(dtype=f64, out_dtype=f64, blocksize=(3, 3), columns=3)
    >>> tile(f, Fields()).threads
    128
    """
    bm, bk, bn = f.sides
    if max(bm, bk, bn) > _LARGEST:
        return None
    return Tile(bm, bn, 32 * _WARPS, {**types(f), "BM": bm, "BK": bk, "BN": bn})


def launches(p: Spgemm, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    blocks = _WARPS * (_LARGEST // max(tile.tile_m, tile.tile_n))
    return spgemm_launch(p, tile, SOURCES[0], grid(ceil_div(p.blocks, blocks)))
