"""Dense @ dense at the stored blocks on Hopper through wgmma (``bsr_sampled_addmm_sm90.cu``).

Blocks that follow each other in a block row share a tile: 16-bit floats, int8 and TF32, columns of
a block in multiples of 8. Matrices that tensor maps cannot describe are first copied to workspace.
"""

from __future__ import annotations

from ..runtime.architectures import HOPPER
from ..runtime.device import multiprocessors
from ..runtime.launch import Launch, kernel
from ..runtime.types import ctype
from . import _sampled
from ._facts import HALVES, INDICES
from ._fields import Fields
from ._matrix_maps import LINE_BYTES, described, numbers, rows_map
from ._sampled import Sampled, SampledFacts, fullest, in_lines, pick_split, tiles_of
from ._sm90 import MOST_STAGES, RESERVED, SHARED, THREADS
from ._tile import Tile
from ._tma import INT32

NAME = "wgmma"
SOURCES = ("bsr_sampled_addmm_sm90",)
DTYPES, ARCHS = (*HALVES, "int8", "float32"), HOPPER
TENSOR_CORES = True
BY_ADDRESS = INDICES

facts, examples, epilogues = Sampled.facts, _sampled.examples, _sampled.epilogues

_PATTERN = 8  # lines, after which a swizzle repeats
_PANEL = 64  # columns of a box of rows
_SMALLEST_BLOCK = 8  # rows: of fewer, a tile has next to nothing
_FASTER = 64  # rows and columns
#: Tiles a multiprocessor up to which each has a thread block of its own. These start where one has
#: ended, and numbers without blocks cost nothing; of more tiles, persistent thread blocks copy
#: for the next tile while they store one.
_FEW = 3
_STORE_BUFFERS = 8 * 16 * 40 * 4  # bytes, of eight warps
_TILE_BYTES = 64  # that say which tile a stage is of


def pays(f: SampledFacts) -> bool:
    """Return whether blocks are large enough to be faster than by mma."""
    return min(f.blocksize) >= _FASTER


def worth_measuring(f: SampledFacts) -> bool:
    """Return whether `tune` measures it."""
    return f.blocksize[0] >= _SMALLEST_BLOCK


def serves(p: Sampled) -> bool:
    """Return whether 32 bits count the matrices' rows, columns and inner size."""
    return _sampled.serves(p) and max(*p.pattern.shape, p.mat1.shape[-1]) < INT32


def tile(f: SampledFacts, fields: Fields) -> Tile | None:
    """Return the tile; None for other blocks, and float32 that is not to be rounded to TF32.

    ``fields`` may say ``tile_m``, ``tile_n``, ``stages`` and ``split_k``.

    Examples
    --------
    >>> import numpy as np
    >>> f = SampledFacts(dtype=np.dtype("float16"), shape=(4096, 1024, 4096), blocksize=(128, 128))
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.defines["STAGES"]
    (128, 256, 4)
    """
    bm, bn = f.blocksize
    if not f.tensor_cores or bm < _SMALLEST_BLOCK or bn % _PATTERN or f.capability != (9, 0):
        return None
    tile_m = fields.pick("tile_m", 128 if bm > 64 else 64, (64, 128))
    # A warpgroup has up to 256 columns of 64 rows.
    wide = (128, 256) if tile_m == 128 else (128, 256, 512)
    tile_n = fields.pick("tile_n", fullest(bn, wide[:2]), wide)
    stage = (tile_m + tile_n) * LINE_BYTES
    most = min(
        MOST_STAGES, (SHARED - RESERVED - _STORE_BUFFERS - MOST_STAGES * _TILE_BYTES) // stage
    )
    stages = fields.pick("stages", most, range(2, most + 1))
    split = pick_split(f, fields, (tile_m, tile_n), LINE_BYTES // f.dtype.itemsize, 1)
    across = f.whole_across()[1] and bn % _PANEL == 0
    names = {
        "T": ctype(f.dtype),
        "BM": bm,
        "BN": bn,
        "MAT2": "across" if across else "along",
        "TILE_M": tile_m,
        "TILE_N": tile_n,
        "STAGES": stages,
    }
    return Tile(tile_m, tile_n, THREADS, names, stages * stage + _STORE_BUFFERS + 1024, split)


def launches(p: Sampled, tile: Tile) -> tuple[Launch, ...] | None:
    """Return the launches, None where the tiles are too many to be numbered."""
    by = tile.defines["MAT2"]
    mat1, mat2, copies = in_lines(p, "along", by, described)
    slice_k = LINE_BYTES // p.dtype.itemsize
    tiles = tiles_of(p, tile, SOURCES[0], mat1, mat2, slice_k)
    if tiles is None:
        return None
    bm, bn = p.pattern.blocksize
    right = mat2 if by == "across" else mat2.swapaxes(-1, -2)
    box = LINE_BYTES // right.itemsize if by == "across" else min(bn, tile.tile_n)
    maps = bytes(2 * LINE_BYTES)  # of matrices that are not read
    if p.inner:
        maps = rows_map(mat1, min(bm, tile.tile_m)) + rows_map(right, box)
    product = Launch(
        kernel(SOURCES[0], ARCHS, **tiles.defines, **tile.defines),
        (tiles.count if tiles.count <= _FEW * multiprocessors() else multiprocessors(),),
        (tile.threads,),
        (
            maps,
            numbers(mat1, tiles.batch) + numbers(right, tiles.batch),
            *tiles.views,
            tiles.batch_argument,
            tiles.problem,
            tiles.epilogue,
        ),
        tile.shared_memory,
    )
    return *copies, product, *tiles.after
