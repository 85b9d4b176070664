"""Dense @ dense of float64 at the stored blocks on tensor cores (``bsr_sampled_addmm_f64.cu``).

Blocks that follow each other in a block row share a tile. Matrices are read as they lie, with any
strides.
"""

from __future__ import annotations

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _sampled, _sampled_full_precision
from ._facts import always
from ._fields import Fields
from ._sampled import Sampled, SampledFacts
from ._sampled_full_precision import Shape, full_precision_launches, full_precision_tile, order
from ._tile import Tile

NAME = "mma_f64"
SOURCES = ("bsr_sampled_addmm_f64",)
DTYPES, ARCHS = ("float64",), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = _sampled_full_precision.BY_ADDRESS

facts, examples, epilogues = Sampled.facts, _sampled.examples, _sampled.epilogues
serves, pays = always, _sampled_full_precision.pays
worth_measuring = _sampled_full_precision.worth_measuring

#: By rows and by columns of a tile.
_TILES = {
    8: {64: Shape(16, 1, 2, 4, 2), 128: Shape(16, 1, 2, 4, 3)},
    16: {64: Shape(16, 1, 2, 4, 2), 128: Shape(16, 1, 2, 4, 2)},
    24: {64: Shape(16, 1, 2, 4, 2), 128: Shape(16, 1, 2, 4, 2)},
    32: {64: Shape(16, 1, 2, 4, 2), 128: Shape(16, 1, 2, 4, 2)},
    48: {64: Shape(16, 1, 2, 4, 2), 128: Shape(16, 1, 4, 2, 3)},
    64: {64: Shape(16, 1, 2, 3, 2), 128: Shape(16, 1, 4, 2, 3)},
}


def tile(f: SampledFacts, fields: Fields) -> Tile:
    """Return the tile.

    ``fields`` may say ``tile_m``, ``tile_n``, ``stages`` and ``split_k``.

    Examples
    --------
    >>> import numpy as np
    >>> f = SampledFacts(
    ...     dtype=np.dtype("float64"), shape=(8192, 1024, 8192), blocksize=(64, 64), row_blocks=13.0
    ... )
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.threads
    (64, 128, 128)
    """
    return full_precision_tile(f, fields, _TILES, _stage_bytes, _buffer_bytes)


def _stage_bytes(tile_m: int, tile_n: int, s: Shape) -> int:
    left = s.tile_k + (8 if s.tile_k % 16 == 0 else 0)
    return (tile_m * left + s.tile_k * (tile_n + 2)) * 8


def _buffer_bytes(tile_m: int, tile_n: int, s: Shape) -> int:
    """Return the bytes of eight rows of every warp."""
    return s.warps_m * 8 * (tile_n + 2 * s.warps_n) * 8


def launches(p: Sampled, tile: Tile) -> tuple[Launch, ...] | None:
    """Return the launches, None where a grid cannot have so many tiles."""
    return full_precision_launches(p, tile, SOURCES[0], order(p.mat1, p.inner))
