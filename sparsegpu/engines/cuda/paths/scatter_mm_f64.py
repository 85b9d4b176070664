"""Products of float64 blocks, added where lists say, on tensor cores (``scatter_mm_f64.cu``).

Blocks and others are read as they lie, with any strides.
"""

from __future__ import annotations

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _scatter, _scatter_full_precision
from ._facts import always
from ._fields import Fields
from ._pairs_full_precision import MMA_F64, MMA_F64_SHAPES
from ._sampled_full_precision import order
from ._scatter import Scatter, ScatterFacts
from ._scatter_full_precision import full_precision_launches, full_precision_tile
from ._tile import Tile

NAME = "mma_f64"
SOURCES = ("scatter_mm_f64",)
DTYPES, ARCHS = ("float64",), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = _scatter_full_precision.BY_ADDRESS

facts, examples, epilogues = Scatter.facts, _scatter.examples, _scatter.epilogues
pays = worth_measuring = _scatter_full_precision.pays
serves = always


def tile(f: ScatterFacts, fields: Fields) -> Tile:
    """Return the tile.

    ``fields`` may say ``tile_m``, ``tile_n``, ``stages`` and ``group_size``.

    Examples
    --------
    >>> import numpy as np
    >>> f = ScatterFacts(
    ...     form="pairs", dtype=np.dtype("float64"), blocksize=(64, 64), columns=64
    ... )
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.threads
    (64, 64, 128)
    """
    return full_precision_tile(f, fields, MMA_F64, MMA_F64_SHAPES)


def launches(p: Scatter, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return full_precision_launches(p, tile, SOURCES[0], order(p.blocks, p.blocks.shape[2]))
