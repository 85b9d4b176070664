"""Products of blocks, added where lists say (``scatter_mm_simt.cu``): every dtype, size and stride.

Without tensor cores. The path to read first.
"""

from __future__ import annotations

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from ..runtime.types import ctype
from . import _scatter
from ._facts import FLOATS, INDICES, always
from ._fields import Fields
from ._scatter import Scatter, ScatterFacts, pick_group_size, scatter_launch
from ._simt_tile import simt_tile
from ._tile import Tile

NAME = "simt"
SOURCES = ("scatter_mm_simt",)
DTYPES, ARCHS = (*FLOATS, "int8", "complex64", "complex128"), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = INDICES

facts, examples, epilogues = Scatter.facts, _scatter.examples, _scatter.epilogues
pays = serves = worth_measuring = always


def tile(f: ScatterFacts, fields: Fields) -> Tile:
    """Return the tile: the smallest that holds a block product, up to 64 x 64.

    ``fields`` may say ``tile_m``, ``tile_n`` and ``group_size``.

    Examples
    --------
    >>> import numpy as np
    >>> f32 = np.dtype("float32")
    >>> f = ScatterFacts(form="pairs", dtype=f32, blocksize=(200, 64), columns=24)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.defines["GROUP_SIZE"]
    (64, 64, 4)
    """
    simt = simt_tile(f.blocksize[0], f.columns, fields)
    group = pick_group_size(f, fields, simt.tile_m)
    names = {"FORMAT": f.form, "T": ctype(f.dtype), **simt.defines, "GROUP_SIZE": group}
    return Tile(simt.tile_m, simt.tile_n, simt.threads, names)


def launches(p: Scatter, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return scatter_launch(p, tile, SOURCES[0])
