"""BSR @ BSR of float32, at IEEE precision (``bsr_spgemm_f32.cu``)."""

from __future__ import annotations

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _spgemm, _spgemm_full_precision
from ._facts import always
from ._fields import Fields
from ._pairs_full_precision import FMA, FMA_SHAPES
from ._spgemm import PAIRS, Spgemm, SpgemmFacts
from ._spgemm_full_precision import full_precision_launches, full_precision_tile
from ._tile import Tile

NAME = "fma"
SOURCES = ("bsr_spgemm_f32",)
DTYPES, ARCHS = ("float32",), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = PAIRS

facts, examples = Spgemm.facts, _spgemm.examples
pays = worth_measuring = _spgemm_full_precision.pays
serves = always


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
    return full_precision_tile(f, fields, FMA, FMA_SHAPES)


def launches(p: Spgemm, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return full_precision_launches(p, tile, SOURCES[0])
