"""2:4 @ dense on sparse tensor cores from 8.0 on (``semi_structured_addmm_sm80.cu``)."""

from __future__ import annotations

from dataclasses import replace

from ...._math import ceil_div
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from ..runtime.types import ctype
from ._dense_lines import tensor_core_lines
from ._facts import HALVES, Facts, always
from ._fields import Fields
from ._mma_sp import STAGES, STEP_BYTES, THREADS, stage_bytes, tile_columns
from ._product_24 import Product24, tile_launch
from ._tile import Tile

NAME = "mma_sp"
SOURCES = ("semi_structured_addmm_sm80",)
DTYPES, ARCHS = (*HALVES, "int8", "float32", "float8_e4m3fn"), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = {"DENSE": ("rows", "columns", "strided")}


facts, pays, serves = Product24.facts, always, always


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return the tile, None for dtypes that mma.sp does not multiply there.

    ``fields`` may say ``tile_m`` and ``tile_n``.

    Examples
    --------
    >>> import numpy as np
    >>> chosen = tile(Facts(dtype=np.dtype("float16"), shape=(8192, 4096, 1000)), Fields())
    >>> chosen.tile_m, chosen.tile_n
    (128, 128)
    >>> tile(Facts(dtype=np.dtype("float32"), shape=(128, 64, 1)), Fields())
    """
    if not f.tensor_cores:
        return None
    # float8 has two sets of sums (see the kernel), which costs registers.
    highest, widest = (64, 32) if f.dtype.name == "float8_e4m3fn" else (128, 128)
    tile_m = fields.pick("tile_m", highest, [t for t in (64, 128) if t <= highest])
    tiles = f.matrices * ceil_div(f.shape[0], 128)
    width = min(tile_columns(f.columns, tiles, f.multiprocessors), widest)
    tile_n = fields.pick("tile_n", width, [t for t in (16, 32, 64, 128) if t <= widest])
    names = {"T": ctype(f.dtype), "TILE_M": tile_m, "TILE_N": tile_n, "STAGES": STAGES}
    return Tile(tile_m, tile_n, THREADS, names, STAGES * stage_bytes(tile_m, tile_n))


def launches(p: Product24, tile: Tile) -> tuple[Launch, ...]:
    """Return the launches that compute a product."""
    copies: tuple[Launch, ...] = ()
    layout = "columns"
    if p.packed_columns:
        dense, layout, copies = tensor_core_lines(p.dense, p.packed.itemsize != 2)
        p = replace(p, dense=dense)
    tile = replace(tile, defines=tile.defines | {"DENSE": layout})
    steps = p.packed_columns * p.packed.itemsize // STEP_BYTES
    return *copies, tile_launch(p, tile, SOURCES[0], "SparseMmaProblem", steps=steps)
