"""Dense @ dense at the stored blocks on tensor cores from 8.0 on (``bsr_sampled_addmm_sm80.cu``).

Blocks that follow each other in a block row share a tile: 16-bit floats, int8 and TF32, blocks of
8 rows and columns or more. Matrices without aligned 16-byte vectors are first copied to workspace.
"""

from __future__ import annotations

from ..runtime.architectures import LEAST_SHARED_MEMORY, PORTABLE
from ..runtime.launch import Launch, kernel
from ..runtime.types import ctype
from ..runtime.view import matrix_view
from . import _sampled
from ._facts import HALVES, INDICES, always
from ._fields import Fields
from ._sampled import Sampled, SampledFacts, fullest, in_lines, pick_split, tiles_of
from ._tile import Tile

NAME = "mma"
SOURCES = ("bsr_sampled_addmm_sm80",)
DTYPES, ARCHS = (*HALVES, "int8", "float32"), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = INDICES

facts, examples, epilogues = Sampled.facts, _sampled.examples, _sampled.epilogues
serves, pays = _sampled.serves, always

_SMALLEST_BLOCK = 8  # rows, and columns: with fewer, fragments are mostly empty
_SLICE_BYTES = 64  # of k, that a stage holds
_ROWS, _COLUMNS, _WARPS = (16, 32, 64, 128), (64, 128, 256), (1, 2, 4, 8)
_WARP = 64  # rows, and columns, of a warp
_MOST_SUMS = 128 * 128  # of a thread block
_MOST_WARPS = 8
_MOST_RESIDENT = 256  # threads of a multiprocessor, with the 256 registers that most tiles need


def worth_measuring(f: SampledFacts) -> bool:
    """Return whether `tune` measures it."""
    return min(f.blocksize) >= _SMALLEST_BLOCK


def tile(f: SampledFacts, fields: Fields) -> Tile | None:
    """Return the tile; None for smaller blocks, and float32 that is not to be rounded to TF32.

    ``fields`` may say ``tile_m``, ``tile_n``, ``warps_m``, ``warps_n``, ``stages`` and ``split_k``.

    Examples
    --------
    >>> import numpy as np
    >>> f = SampledFacts(dtype=np.dtype("float16"), shape=(4096, 1024, 4096), blocksize=(32, 32))
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.threads
    (32, 256, 128)
    """
    bm, bn = f.blocksize
    if not f.tensor_cores or min(bm, bn) < _SMALLEST_BLOCK:
        return None
    tile_m = next((t for t in _ROWS if t >= bm), _ROWS[-1])
    tile_m = fields.pick("tile_m", tile_m, _ROWS)
    wide = [t for t in _COLUMNS if tile_m * t <= _MOST_SUMS]
    tile_n = fields.pick("tile_n", fullest(bn, wide), wide)
    by_rows = [
        w
        for w in _WARPS
        if tile_m % (16 * w) == 0 and tile_m // w <= _WARP and tile_n // _WARP * w <= _MOST_WARPS
    ]
    warps_m = fields.pick("warps_m", max(tile_m // 32, 1), by_rows)
    by_columns = [
        w
        for w in _WARPS
        if tile_n % (16 * w) == 0
        and tile_n // w <= _WARP
        and warps_m * w <= _MOST_WARPS
        and tile_n // 8 <= 32 * warps_m * w  # a row of a slice is copied at once
    ]
    warps_n = fields.pick("warps_n", max(tile_n // 64, 1), by_columns)
    stage = _SLICE_BYTES * (tile_m + tile_n)
    buffers = warps_m * 16 * (tile_n + 8 * warps_n) * 4  # of the staged outputs
    fitting = [s for s in (2, 3, 4, 5) if buffers <= s * stage <= LEAST_SHARED_MEMORY]
    stages = fields.pick("stages", 4 if tile_m <= 32 else 3, fitting)
    threads, shared = 32 * warps_m * warps_n, stages * stage
    resident = min(_MOST_RESIDENT // threads, f.shared_memory // shared)
    split = pick_split(f, fields, (tile_m, tile_n), _SLICE_BYTES // f.dtype.itemsize, resident)
    mat1, mat2 = ("across" if whole else "along" for whole in f.whole_across())
    names = {
        "T": ctype(f.dtype),
        "BN": bn,
        "MAT1": mat1,
        "MAT2": mat2,
        "TILE_M": tile_m,
        "TILE_N": tile_n,
        "WARPS_M": warps_m,
        "WARPS_N": warps_n,
        "STAGES": stages,
    }
    return Tile(tile_m, tile_n, threads, names, shared, split)


def launches(p: Sampled, tile: Tile) -> tuple[Launch, ...] | None:
    """Return the launches, None where a grid cannot have so many tiles."""
    mat1, mat2, copies = in_lines(p, tile.defines["MAT1"], tile.defines["MAT2"])
    slice_k = _SLICE_BYTES // p.dtype.itemsize
    tiles = tiles_of(p, tile, SOURCES[0], mat1, mat2, slice_k)
    if tiles is None:
        return None
    product = Launch(
        kernel(SOURCES[0], **tiles.defines, **tile.defines),
        (tiles.count,),
        (tile.threads,),
        (
            *tiles.views,
            matrix_view(mat1, tiles.batch),
            matrix_view(mat2, tiles.batch),
            tiles.batch_argument,
            tiles.problem,
            tiles.epilogue,
        ),
        tile.shared_memory,
    )
    return *copies, product, *tiles.after
