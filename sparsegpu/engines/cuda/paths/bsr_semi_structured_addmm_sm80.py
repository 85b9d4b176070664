"""BSR of 2:4 blocks @ dense through mma.sp (``bsr_semi_structured_addmm_sm80.cu``): any block."""

from __future__ import annotations

from dataclasses import replace

from ...._math import ceil_div
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from ..runtime.types import ctype
from ._block_row_product import block_row_launch
from ._dense_lines import tensor_core_lines
from ._facts import HALVES, INDICES, Facts, always
from ._fields import Fields
from ._mma_sp import STAGES, THREADS, stage_bytes, tile_columns
from ._product import Product
from ._tile import Tile

NAME = "mma_sp"
SOURCES = ("bsr_semi_structured_addmm_sm80",)
DTYPES, ARCHS = (*HALVES, "int8", "float32"), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = {**INDICES, "DENSE": ("rows", "columns", "strided")}

_ROWS, _COLUMNS = (32, 64, 128), (16, 32, 64, 128)

facts, pays = Product.facts, always


def serves(p: Product) -> bool:
    """Return whether blocks can be copied in vectors of 16 bytes."""
    return p.empty or p.data.data.ptr % 16 == p.meta.data.ptr % 16 == 0


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return the tile, None for dtypes that mma.sp does not multiply there.

    ``fields`` may say ``tile_m`` and ``tile_n``.
    """
    if not f.tensor_cores:
        return None
    bm = f.blocksize[0]
    tile_m = fields.pick("tile_m", next((t for t in _ROWS if t >= bm), _ROWS[-1]), _ROWS)
    rows = f.block_rows * ceil_div(bm, tile_m) * tile_m
    widths = _COLUMNS[tile_m == 32 :]  # a tile of 32 rows is shared by four warps side by side
    width = max(tile_columns(f.columns, rows // 128, f.multiprocessors), widths[0])
    tile_n = fields.pick("tile_n", width, widths)
    names = {"T": ctype(f.dtype), "TILE_M": tile_m, "TILE_N": tile_n, "STAGES": STAGES}
    return Tile(tile_m, tile_n, THREADS, names, STAGES * stage_bytes(tile_m, tile_n))


def launches(p: Product, tile: Tile) -> tuple[Launch, ...]:
    """Return the launches; what of ``dense`` cannot be copied as it lies is laid in lines first."""
    copies: tuple[Launch, ...] = ()
    layout = "columns"
    if not p.empty:
        dense, layout, copies = tensor_core_lines(p.dense, p.data.itemsize != 2)
        p = replace(p, dense=dense)
    return *copies, block_row_launch(p, tile, SOURCES[0], DENSE=layout)
