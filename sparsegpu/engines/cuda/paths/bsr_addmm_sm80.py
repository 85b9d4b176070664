"""BSR @ dense on tensor cores from 8.0 on (``bsr_addmm_sm80.cu``): int8, TF32, any 16-bit."""

from __future__ import annotations

from dataclasses import replace

from ..runtime.architectures import LEAST_SHARED_MEMORY, PORTABLE
from ..runtime.launch import MAX_GRID, Launch
from ..runtime.types import ctype
from ..runtime.view import MAX_BATCH_DIMS
from ._block_row_product import block_row_launch, tiles_of
from ._dense_lines import aligned_lines, by_element
from ._facts import HALVES, INDICES, Facts, always
from ._fields import Fields
from ._product import Product
from ._tile import Tile

NAME = "mma"
SOURCES = ("bsr_addmm_sm80",)
DTYPES, ARCHS = (*HALVES, "int8", "float32"), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = INDICES
TOGETHER = ("T", "TRANSPOSED", "DATA_VECTORS")

_SLICE_BYTES = 64  # of k, that a stage holds
_STAGES = 3
_ROWS, _COLUMNS = (16, 32, 64, 128), (32, 64, 128)
_WARPS = (1, 2, 4, 8)
_WARP = 64  # rows, and columns, of a warp: sums of 64 x 64 are 128 registers
_HALF_A_FRAGMENT = 8  # rows, and columns; with fewer, SIMT code wastes less
_FEWEST_BY_ELEMENT = 17  # rows that are worth copies by element of both operands
_WORTH = 4  # rows, and columns, that are worth a measurement

serves = always


def pays(f: Facts) -> bool:
    """Return whether it was measured to be faster than SIMT code.

    Half a fragment of rows and columns is enough for TF32 and for blocks that are stored
    transposed. Of others, either operand is to be copied in vectors, or a block has many rows.
    """
    bm = f.blocksize[0]
    if f.transposed or f.itemsize == 4:
        return min(bm, f.columns) >= _HALF_A_FRAGMENT or bm >= _FEWEST_BY_ELEMENT
    in_vectors = f.rows_aligned(16) or _dense_layout(f) != "strided"
    return in_vectors or bm >= _FEWEST_BY_ELEMENT


def worth_measuring(f: Facts) -> bool:
    """Return whether `tune` measures it."""
    return min(f.blocksize[0], f.columns) >= _WORTH


def facts(p: Product) -> Facts:
    """Return what the tile depends on; without column_blocks where ``dense`` cannot be copied."""
    f = p.facts()
    copied = not p.empty and p.dense.ndim - 2 <= MAX_BATCH_DIMS
    return f if copied else replace(f, column_blocks=0.0)


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return the tile; None for float32 that is not to be rounded to TF32.

    ``fields`` may say ``tile_m``, ``tile_n``, ``warps_m``, ``warps_n`` and ``stages``.
    """
    if not f.tensor_cores:
        return None
    (bm, bk), size = f.blocksize, f.itemsize
    tile_m = next((t for t in _ROWS[:-1] if t >= bm), _ROWS[-1])
    tile_n = next((t for t in _COLUMNS[:-1] if t >= f.columns), _COLUMNS[-1])
    tile_m = fields.pick("tile_m", tile_m, _ROWS)
    tile_n = fields.pick("tile_n", tile_n, _COLUMNS)
    by_rows = [w for w in _WARPS if tile_m % (16 * w) == 0 and tile_m // w <= _WARP]
    warps_m = fields.pick("warps_m", max(tile_m // 32, 1), by_rows)
    # A step of the copies is one of all threads: at least one for each row of the tile, and for
    # each of the 64 bytes' terms.
    fewest = max(tile_m, 64 // size)
    by_columns = [
        w
        for w in _WARPS
        if tile_n % (16 * w) == 0 and tile_n // w <= _WARP and 32 * warps_m * w >= fewest
    ]
    warps_n = fields.pick("warps_n", min(4 if tile_m <= 32 else 2, tile_n // 16), by_columns)
    stage = _SLICE_BYTES * (tile_m + tile_n)
    buffers = warps_m * 16 * (tile_n + 8 * warps_n) * 4  # of the epilogue store
    fitting = [s for s in (2, 3, 4) if buffers <= s * stage <= LEAST_SHARED_MEMORY]
    stages = fields.pick("stages", _STAGES, fitting)
    copied = 4 if f.transposed and size == 1 else 16  # bytes of the blocks at a time
    names = {
        "T": ctype(f.dtype),
        "TRANSPOSED": int(f.transposed),
        "BK": bk,
        "TILE_M": tile_m,
        "TILE_N": tile_n,
        "WARPS_M": warps_m,
        "WARPS_N": warps_n,
        "STAGES": stages,
        "DENSE": _dense_layout(f),
        "DATA_VECTORS": int(f.rows_aligned(copied)),
    }
    return Tile(tile_m, tile_n, 32 * warps_m * warps_n, names, stages * stage)


def _dense_layout(f: Facts) -> str:
    """Return the layout in which the kernel reads ``dense``."""
    if _copied_to_columns(f):
        return "columns"
    if f.itemsize == 1 and f.layout == "rows":
        return "bytes"
    if f.layout == "columns" and f.blocksize[1] * f.itemsize % 16:
        return "strided"  # a vector of a column would span two blocks
    return f.layout


def _copied_to_columns(f: Facts) -> bool:
    """Return whether ``dense`` is copied to columns, where tiles would be loaded by elements.

    That pays from two blocks in a block column on.
    """
    whole = f.blocksize[1] * f.itemsize % 16 == 0
    return by_element(f.layout, f.itemsize) and whole and f.column_blocks >= 2


def launches(p: Product, tile: Tile) -> tuple[Launch, ...] | None:
    """Return the launches, None where a grid cannot have so many tiles."""
    if tiles_of(p, tile) > MAX_GRID:
        return None  # a thread block has one tile; those of the other paths may take several
    copies: tuple[Launch, ...] = ()
    if tile.defines["DENSE"] == "columns" and p.layout != "columns":
        dense, copy = aligned_lines(p.dense, True)
        p, copies = replace(p, dense=dense), (copy,)
    return *copies, block_row_launch(p, tile, SOURCES[0])
