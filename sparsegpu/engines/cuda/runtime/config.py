"""Which kernel path, tile and number of stages: pure Python, testable without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .fields import Fields, refused
from .float_tile import SHARED_MEMORY, float_tile

#: Thread blocks of a grid, at most.
MAX_GRID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SimtTile:
    """The tile of a SIMT product (``common/simt_tile.cuh``).

    ``tile_m`` x ``tile_n`` outputs, ``tile_k`` terms at a time; ``lanes`` threads share an output.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    lanes: int

    @property
    def threads(self) -> int:
        """Threads of a block, a multiple of 32."""
        return -(-self.tile_m // 4) * -(-self.tile_n // 4) * self.lanes

    @property
    def defines(self) -> dict[str, int]:
        """The ``-D`` names of the kernel."""
        return {
            "TILE_M": self.tile_m,
            "TILE_N": self.tile_n,
            "TILE_K": self.tile_k,
            "LANES": self.lanes,
        }


_SIMT_ROWS = (4, 16, 64)
_SIMT_COLUMNS = (1, 16, 64)
_FEWEST_THREADS = 64


def simt_tile(rows: int, columns: int, fields: Fields | None = None) -> SimtTile:
    """Return the tile for outputs that come in pieces of ``rows`` x ``columns``.

    The tile is the smallest that holds a piece, up to 64 x 64. Where that leaves few threads,
    several share each output, and more terms are taken at a time. ``fields`` may say ``tile_m`` and
    ``tile_n``.

    Examples
    --------
    >>> simt_tile(32, 4096)
    SimtTile(tile_m=64, tile_n=64, tile_k=16, lanes=1)
    >>> simt_tile(1, 1)
    SimtTile(tile_m=4, tile_n=1, tile_k=64, lanes=32)
    """
    tile_m = next((t for t in _SIMT_ROWS if t >= rows), _SIMT_ROWS[-1])
    tile_n = next((t for t in _SIMT_COLUMNS if t >= columns), _SIMT_COLUMNS[-1])
    fields = fields or Fields()
    tile_m = fields.pick("tile_m", tile_m, _SIMT_ROWS)
    tile_n = fields.pick("tile_n", tile_n, _SIMT_COLUMNS)
    fields.finish()
    outputs = (tile_m // 4) * max(tile_n // 4, 1)
    lanes = min(max(_FEWEST_THREADS // outputs, 1), 32)
    tile_k = 16 if lanes == 1 else max(32, 2 * lanes)
    return SimtTile(tile_m, tile_n, tile_k, lanes)


@dataclass(frozen=True, slots=True)
class ProductConfig:
    """A kernel of a product, and what it is compiled and launched with."""

    source: str
    tile_m: int
    tile_n: int
    threads: int
    defines: dict[str, Any]
    shared_memory: int = 0


@dataclass(frozen=True, slots=True)
class AddmmConfig(ProductConfig):
    """A kernel of `bsr_addmm`.

    ``by_length``: the kernel takes the block rows with most blocks first. ``together``: tiles
    that are taken in one order, those of long rows first.
    """

    by_length: bool = False
    together: int = 384


#: Paths that serve some operands only, and are asked before, in this order.
CHOOSY = ("dense", "vector", "skinny", "skinny_wgmma", "wgmma", "groups")
PATHS = ("simt", "fma", "mma", *CHOOSY)

#: Operand dtypes that the tensor cores multiply (float32 only as TF32).
MMA_DTYPES = ("bfloat16", "float16", "int8", "float32")


class FullPrecision(NamedTuple):
    """Who multiplies a dtype at its full precision."""

    source: str
    path: str


FULL_PRECISION = {
    "float32": FullPrecision("bsr_addmm_f32", "fma"),
    "float64": FullPrecision("bsr_addmm_f64", "mma"),
}

_SLICE_BYTES = 64  # of k, that a stage holds
_MMA_STAGES = 3
_MMA_ROWS = (16, 32, 64, 128)
_MMA_COLUMNS = (32, 64, 128)
_MMA_WARPS = (1, 2, 4, 8)
_MMA_WARP = 64  # rows, and columns, of a warp: sums of 64 x 64 are 128 registers


def bsr_addmm_config(
    dtype: np.dtype,
    blocksize: tuple[int, int],
    columns: int,
    *,
    dense: str,
    data_aligned: bool,
    by_column: bool = False,
    transposed: bool = False,
    allow_tf32: bool = False,
    block_rows: int = 1,
    config: Mapping[str, Any] | None = None,
    fields: Fields | None = None,
) -> AddmmConfig:
    """Return the kernel for ``bsr @ dense``.

    Parameters
    ----------
    dtype : dtype
        Of the operands.
    blocksize : (bm, bk)
        Of the operand as it is multiplied.
    columns : int
        N.
    dense : {"rows", "columns", "bytes", "strided"}
        How the dense operand lies in memory (`engines.cuda._product.layout_of`).
    data_aligned : bool
        What is contiguous in the blocks can be copied in pieces of 16 bytes (int8 that lies
        transposed: 4).
    by_column : bool
        Neighbours in a column of dense lie closer together than those in a row.
    transposed : bool
        The blocks are those of the transpose: their columns are contiguous.
    allow_tf32 : bool
    block_rows : int
        Of the result, those of all its matrices.
    config : mapping, optional
        ``{"path": "simt" | "fma" | "mma"}`` chooses the path; besides, fields of its tile.
    fields : Fields, optional
        Of ``config``, for who wants to know what was asked of it.

    Raises
    ------
    ConfigError
        For another path, or one that does not multiply this dtype or so many tiles; for fields that
        it does not have and values that they cannot have.

    Examples
    --------
    >>> bsr_addmm_config(
    ...     np.dtype("float16"), (32, 32), 4096, dense="rows", data_aligned=True
    ... ).source
    'bsr_addmm_sm80'
    """
    bm, bk = blocksize
    full = FULL_PRECISION.get(dtype.name)
    if dtype == np.float32 and allow_tf32:
        full = None
    can_mma = dtype.name in MMA_DTYPES and (dtype != np.float32 or allow_tf32)
    fast = full.path if full else "mma" if can_mma else "simt"
    path = (config or {}).get("path")
    fields = fields or Fields(config)
    if path is None:
        # Eight rows or columns fill half a fragment; with fewer, plain code wastes less. (It has
        # no fragments of float32 and float64, and stays slower there down to three or four rows.)
        fewest = {"fma": 3, "mma": 4}[full.path] if full else 8
        path = fast if bm >= fewest and columns >= 8 else "simt"
    if path not in PATHS:
        listed = ", ".join(map(repr, (*PATHS, "model")))
        raise refused("config['path']", f"one of {listed}", repr(path))
    if path in CHOOSY:
        expected = f"another path: these operands or this device are not for '{path}'"
        raise refused("config['path']", expected, repr(path))
    if path == "simt":
        return _simt_config(bm, columns, fields)
    if path != fast:
        offered = f"'{fast}' or 'simt'" if fast != "simt" else "'simt'"
        expected = f"{offered} for {dtype} operands"
        if dtype == np.float32:
            expected += " with allow_tf32" if allow_tf32 else " without allow_tf32"
        raise refused("config['path']", expected, repr(path))
    if full:
        pieces = dense == "rows" and columns * dtype.itemsize % 16 == 0
        layout = "vectors" if pieces else "columns" if by_column else "rows"
        data = "columns" if transposed else "vectors" if data_aligned else "rows"
        return _float_config(full.source, dtype.itemsize, bm, bk, columns, layout, data, fields)
    choice = _mma_config(dtype.itemsize, bm, bk, columns, dense, data_aligned, transposed, fields)
    if block_rows * -(-bm // choice.tile_m) * -(-columns // choice.tile_n) <= MAX_GRID:
        return choice  # a thread block has one tile; those of the other paths may take several
    if config:
        expected = "another path: these are more tiles than a grid has room for"
        raise refused("config['path']", expected, repr(path))
    return _simt_config(bm, columns)


def _simt_config(bm: int, columns: int, fields: Fields | None = None) -> AddmmConfig:
    tile = simt_tile(bm, columns, fields)
    return AddmmConfig("bsr_addmm_simt", tile.tile_m, tile.tile_n, tile.threads, tile.defines)


def _float_config(
    source: str,
    itemsize: int,
    bm: int,
    bk: int,
    columns: int,
    dense: str,
    data: str,
    fields: Fields,
) -> AddmmConfig:
    pieces = dense == data == "vectors"
    tile = float_tile(itemsize, bm, bk, columns, pieces=pieces, fields=fields)
    defines = {"BM": bm, "BK": bk, "DATA": data, "DENSE": dense, **tile.defines}
    return AddmmConfig(
        source,
        tile.tile_m,
        tile.tile_n,
        tile.threads,
        defines,
        tile.shared_memory,
        by_length=True,
        together=1024 if itemsize == 4 else 768,
    )


def _mma_config(
    itemsize: int,
    bm: int,
    bk: int,
    columns: int,
    dense: str,
    data_aligned: bool,
    transposed: bool,
    fields: Fields,
) -> AddmmConfig:
    tile_m = next((t for t in (16, 32, 64) if t >= bm), 128)
    tile_n = next((t for t in (32, 64) if t >= columns), 128)
    tile_m = fields.pick("tile_m", tile_m, _MMA_ROWS)
    tile_n = fields.pick("tile_n", tile_n, _MMA_COLUMNS)
    rows = [w for w in _MMA_WARPS if tile_m % (16 * w) == 0 and tile_m // w <= _MMA_WARP]
    warps_m = fields.pick("warps_m", max(tile_m // 32, 1), rows)
    # A step of the copies is one of all threads: at least one for each row of the tile, and for
    # each of the 64 bytes' terms.
    fewest = max(tile_m, 64 // itemsize)
    columns_ = [
        w
        for w in _MMA_WARPS
        if tile_n % (16 * w) == 0 and tile_n // w <= _MMA_WARP and 32 * warps_m * w >= fewest
    ]
    warps_n = fields.pick("warps_n", min(4 if tile_m <= 32 else 2, tile_n // 16), columns_)
    if itemsize == 1 and dense == "rows":
        dense = "bytes"
    if dense == "columns" and bk * itemsize % 16:
        dense = "strided"  # a piece of a column would span two blocks
    stage = _SLICE_BYTES * (tile_m + tile_n)
    strips = warps_m * 16 * (tile_n + 8 * warps_n) * 4  # of outputs on their way out
    fitting = [s for s in (2, 3, 4) if strips <= s * stage <= SHARED_MEMORY]
    stages = fields.pick("stages", _MMA_STAGES, fitting)
    fields.finish()
    defines = {
        "BK": bk,
        "TILE_M": tile_m,
        "TILE_N": tile_n,
        "WARPS_M": warps_m,
        "WARPS_N": warps_n,
        "STAGES": stages,
        "DENSE": dense,
        "DATA_VECTORS": int(data_aligned),
    }
    return AddmmConfig(
        "bsr_addmm_sm80",
        tile_m,
        tile_n,
        32 * warps_m * warps_n,
        defines,
        stages * stage,
    )
