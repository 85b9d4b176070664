"""BSR @ BSR of float32, at IEEE precision (``bsr_spgemm_f32.cu``)."""

from __future__ import annotations

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _spgemm, _spgemm_full_precision
from ._facts import always
from ._fields import Fields
from ._spgemm import PAIRS, Spgemm, SpgemmFacts
from ._spgemm_full_precision import Shape, full_precision_launches, full_precision_tile
from ._tile import Tile

NAME = "fma"
SOURCES = ("bsr_spgemm_f32",)
DTYPES, ARCHS = ("float32",), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = PAIRS

facts, examples = Spgemm.facts, _spgemm.examples
pays = worth_measuring = _spgemm_full_precision.pays
serves = always

#: By rows and columns of a tile. Sixteen lanes have enough outputs of 16 x 16.
_SHAPES = {
    (16, 16): Shape(1, 1, 16, 3, 4, 2),
    (16, 32): Shape(1, 1, 16, 3, 4, 1),
    (16, 64): Shape(1, 1, 12, 3, 4, 1),
    (32, 16): Shape(1, 1, 16, 3, 4, 1),
    (32, 32): Shape(1, 1, 20, 2, 8, 1),
    (32, 64): Shape(1, 2, 8, 3, 8, 1),
    (64, 16): Shape(1, 1, 12, 3, 8, 1),
    (64, 32): Shape(2, 1, 8, 3, 8, 1),
    (64, 64): Shape(2, 2, 5, 2, 8, 1),
}


def tile(f: SpgemmFacts, fields: Fields) -> Tile:
    """Return the tile.

    ``fields`` may say ``tile_m``, ``tile_n`` and ``stages``.

    Examples
    --------
    >>> import numpy as np
    >>> f32 = np.dtype("float32")
    >>> f = SpgemmFacts(dtype=f32, out_dtype=f32, blocksize=(64, 64), columns=64)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.threads, chosen.shared_memory
    (64, 64, 128, 17408)
    """
    return full_precision_tile(f, fields, _SHAPES, 4, _stage_bytes, _part_rows)


def _stage_bytes(tile_m: int, tile_n: int, tile_k: int) -> int:
    return tile_k * (tile_m + 4 + tile_n + 4) * 4


def _part_rows(tile_m: int, s: Shape) -> int:
    """Return four rows of every lane."""
    return 4 * tile_m // s.warps_m // s.thread_m


def launches(p: Spgemm, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return full_precision_launches(p, tile, SOURCES[0])
