"""Products of float32 blocks, added where lists say, at IEEE precision (``scatter_mm_f32.cu``).

By multiply-adds from shared memory. Blocks and others are read as they lie, with any strides.
"""

from __future__ import annotations

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _scatter, _scatter_full_precision
from ._facts import always
from ._fields import Fields
from ._pairs_full_precision import FMA, FMA_SHAPES, Shape
from ._sampled_full_precision import order
from ._scatter import Scatter, ScatterFacts
from ._scatter_full_precision import full_precision_launches, full_precision_tile
from ._tile import Tile

NAME = "fma"
SOURCES = ("scatter_mm_f32",)
DTYPES, ARCHS = ("float32",), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = _scatter_full_precision.BY_ADDRESS

facts, examples, epilogues = Scatter.facts, _scatter.examples, _scatter.epilogues
pays = worth_measuring = _scatter_full_precision.pays
serves = always

#: A lane has 8 x 8 or 8 x 16 outputs of wide tiles: fewer loads for a product. Strides and lists
#: leave fewer registers for those of 32 x 32.
_SHAPES = {
    **FMA_SHAPES,
    (16, 128): Shape(1, 1, 12, 3, 8, 1),
    (32, 32): Shape(1, 1, 16, 2, 8, 1),
    (32, 64): Shape(1, 1, 12, 3, 8, 1),
    (32, 128): Shape(1, 1, 8, 3, 8, 1),
    (64, 64): Shape(2, 1, 6, 3, 8, 1),
    (64, 128): Shape(2, 1, 4, 3, 8, 1),
}


def tile(f: ScatterFacts, fields: Fields) -> Tile:
    """Return the tile.

    ``fields`` may say ``tile_m``, ``tile_n``, ``stages`` and ``group_size``.

    Examples
    --------
    >>> import numpy as np
    >>> f = ScatterFacts(
    ...     form="pairs", dtype=np.dtype("float32"), blocksize=(64, 64), columns=64
    ... )
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.threads
    (64, 64, 64)
    """
    return full_precision_tile(f, fields, FMA, _SHAPES)


def launches(p: Scatter, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    by_term = order(p.blocks.swapaxes(-1, -2), p.blocks.shape[1])
    return full_precision_launches(p, tile, SOURCES[0], by_term)
