"""BSR @ BSR of float64 blocks beyond 8 x 8 on tensor cores (``bsr_spgemm_f64_tiled.cu``)."""

from __future__ import annotations

from dataclasses import replace

from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _spgemm, _spgemm_full_precision
from ._facts import always
from ._fields import Fields
from ._pairs_full_precision import MMA_F64, MMA_F64_SHAPES
from ._spgemm import PAIRS, Spgemm, SpgemmFacts
from ._spgemm_full_precision import copies, full_precision_launches, full_precision_tile
from ._tile import Tile

NAME = "mma_f64_tiled"
SOURCES = ("bsr_spgemm_f64_tiled",)
DTYPES, ARCHS = ("float64",), PORTABLE
TENSOR_CORES = True
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
    >>> f64 = np.dtype("float64")
    >>> f = SpgemmFacts(dtype=f64, out_dtype=f64, blocksize=(16, 16), columns=16)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.threads, chosen.shared_memory
    (16, 16, 32, 10752)
    """
    chosen = full_precision_tile(f, fields, MMA_F64, MMA_F64_SHAPES)
    return replace(chosen, defines={**chosen.defines, "LEFT": copies(f, f.blocksize[1])})


def launches(p: Spgemm, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    return full_precision_launches(p, tile, SOURCES[0])
