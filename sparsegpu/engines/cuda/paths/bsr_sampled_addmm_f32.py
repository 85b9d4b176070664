"""Dense @ dense of float32 at the stored blocks, at IEEE precision (``bsr_sampled_addmm_f32.cu``).

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

NAME = "fma"
SOURCES = ("bsr_sampled_addmm_f32",)
DTYPES, ARCHS = ("float32",), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = _sampled_full_precision.BY_ADDRESS

facts, examples, epilogues = Sampled.facts, _sampled.examples, _sampled.epilogues
serves, pays = always, _sampled_full_precision.pays
worth_measuring = _sampled_full_precision.worth_measuring

#: By rows and by columns of a tile. A lane has 4 or 8 x 8 of its outputs, 12 x 8 where rows are a
#: multiple of 24, 8 x 16 of wide warps: each of the multiply-adds of a term then needs 1/11 to 1/21
#: of a 16-byte load.
_TILES = {
    16: {
        64: Shape(16, 1, 1, 12, 3, 4),
        128: Shape(8, 1, 1, 12, 3, 8),
        256: Shape(8, 1, 2, 6, 3, 8),
    },
    24: {128: Shape(8, 1, 1, 8, 3, 12), 256: Shape(8, 1, 2, 4, 3, 12)},
    32: {64: Shape(16, 1, 1, 12, 3, 8), 128: Shape(8, 1, 1, 8, 3, 8), 256: Shape(8, 1, 2, 4, 3, 8)},
    48: {128: Shape(16, 1, 2, 4, 3, 12), 256: Shape(16, 1, 4, 2, 3, 12)},
    64: {
        64: Shape(16, 2, 1, 6, 3, 8),
        128: Shape(16, 2, 1, 4, 3, 8),
        256: Shape(16, 2, 2, 2, 3, 8),
    },
    128: {128: Shape(16, 2, 2, 2, 3, 8)},
}


def tile(f: SampledFacts, fields: Fields) -> Tile:
    """Return the tile.

    ``fields`` may say ``tile_m``, ``tile_n``, ``stages`` and ``split_k``.

    Examples
    --------
    >>> import numpy as np
    >>> f = SampledFacts(
    ...     dtype=np.dtype("float32"), shape=(8192, 1024, 8192), blocksize=(64, 64), row_blocks=13.0
    ... )
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.threads
    (64, 128, 64)
    """
    return full_precision_tile(f, fields, _TILES, _stage_bytes, _buffer_bytes)


def _stage_bytes(tile_m: int, tile_n: int, s: Shape) -> int:
    return s.tile_k * (tile_m + 4 + tile_n + 4) * 4


def _buffer_bytes(tile_m: int, tile_n: int, s: Shape) -> int:
    """Return the bytes of four rows of every lane."""
    return 4 * tile_m // s.thread_m * (tile_n + 4 * s.warps_n) * 4


def launches(p: Sampled, tile: Tile) -> tuple[Launch, ...] | None:
    """Return the launches, None where a grid cannot have so many tiles."""
    mat1_order = order(p.mat1.swapaxes(-1, -2), p.pattern.blocksize[0])
    return full_precision_launches(p, tile, SOURCES[0], mat1_order)
