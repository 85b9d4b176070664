"""Dense @ dense at the stored blocks on Hopper through wgmma (``bsr_sampled_addmm_sm90.cu``).

Blocks that follow each other in a block row share a tile: 16-bit floats, int8 and TF32, columns of
a block in multiples of 8. Matrices that tensor maps cannot describe are first copied to workspace.
"""

from __future__ import annotations

from math import gcd

from ...._math import ceil_div
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
_WIDEST = 64  # columns of a unit, and of a box of rows
_NARROWEST = 16  # columns of a box of rows: a swizzle's 32 bytes
_SMALLEST_BLOCK = 8  # rows: of fewer, a tile has next to nothing
_WIDTHS = (128, 256, 384, 512)  # of a tile
#: Rows and columns of a block from which this is faster than mma: of 16-bit types, of others.
_FASTER_HALVES, _FASTER = 32, 64
#: Bytes of the matrices that stay in the L2. Of larger ones, thread blocks work on few block rows
#: at a time; of smaller ones each has an even share of all, and few tiles of it are narrow ones.
_IN_CACHE, _FEW_UNITS = 40 << 20, 8
#: Tiles a multiprocessor up to which each has a thread block of its own. These start where one has
#: ended, and numbers without blocks cost nothing.
_FEW = 3
_TILE_BYTES = 64  # that say which tile a stage is of


def pays(f: SampledFacts) -> bool:
    """Return whether blocks are large enough to be faster than by mma."""
    return min(f.blocksize) >= (_FASTER_HALVES if f.dtype.itemsize == 2 else _FASTER)


def worth_measuring(f: SampledFacts) -> bool:
    """Return whether `tune` measures it."""
    return f.blocksize[0] >= _SMALLEST_BLOCK


def serves(p: Sampled) -> bool:
    """Return whether 32 bits count the matrices' rows, columns and inner size."""
    return _sampled.serves(p) and max(*p.pattern.shape, p.mat1.shape[-1]) < INT32


def _unit(bn: int, across: bool) -> int:
    """Return how many columns of a block are copied, and numbered, as one."""
    if across:
        return gcd(bn, _WIDEST)
    widest = _WIDEST if bn % _WIDEST == 0 or bn > _WIDTHS[0] else bn
    return next(n for n in range(widest, 0, -_PATTERN) if bn % n == 0)


def tile(f: SampledFacts, fields: Fields) -> Tile | None:
    """Return the tile; None for other blocks, and float32 that is not to be rounded to TF32.

    ``fields`` may say ``tile_m``, ``tile_n``, ``stages``, ``split_k``, and with ``even`` whether
    thread blocks have even shares of all blocks.

    Examples
    --------
    >>> import numpy as np
    >>> f = SampledFacts(dtype=np.dtype("float16"), shape=(4096, 1024, 4096), blocksize=(128, 128))
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_m, chosen.tile_n, chosen.defines["STAGES"]
    (128, 128, 7)
    """
    bm, bn = f.blocksize
    if not f.tensor_cores or bm < _SMALLEST_BLOCK or bn % _PATTERN or f.capability != (9, 0):
        return None
    tile_m = fields.pick("tile_m", 128 if bm > 64 else 64, (64, 128))
    across = f.whole_across()[1] and bn % _NARROWEST == 0
    unit = _unit(bn, across)
    # A warpgroup has up to 256 columns of 64 rows.
    wide: tuple[int, ...] = _WIDTHS[:2] if tile_m == 128 else _WIDTHS
    m, k, n = f.shape
    even = fields.pick("even", int((m + n) * k * f.dtype.itemsize <= _IN_CACHE), (0, 1))
    share = m // bm * f.row_blocks * ceil_div(bm, tile_m) * (bn / _WIDEST) / f.multiprocessors
    usual: tuple[int, ...] = wide[:2]
    if even and tile_m == 128 and share <= _FEW_UNITS:
        usual = wide[:1]
    elif even and tile_m == 64 and f.dtype.itemsize == 2 and f.row_blocks * bn > wide[1]:
        usual = wide[1:3]
    tile_n = fields.pick("tile_n", fullest(unit, usual), wide)
    stage = (tile_m + tile_n) * LINE_BYTES
    most = min(MOST_STAGES, (SHARED - RESERVED - MOST_STAGES * _TILE_BYTES) // stage)
    stages = fields.pick("stages", most, range(2, most + 1))
    split = pick_split(f, fields, (tile_m, min(tile_n, bn)), LINE_BYTES // f.dtype.itemsize, 1)
    names = {
        "T": ctype(f.dtype),
        "BM": bm,
        "BN": bn,
        "UNIT_N": unit,
        "MAT2": "across" if across else "along",
        "TILE_M": tile_m,
        "TILE_N": tile_n,
        "STAGES": stages,
        "EVEN": even,
    }
    return Tile(tile_m, tile_n, THREADS, names, stages * stage + 1024, split)


def launches(p: Sampled, tile: Tile) -> tuple[Launch, ...] | None:
    """Return the launches, None where the tiles are too many to be numbered."""
    by = tile.defines["MAT2"]
    mat1, mat2, copies = in_lines(p, "along", by, described)
    slice_k = LINE_BYTES // p.dtype.itemsize
    unit = tile.defines["UNIT_N"]
    even = bool(tile.defines["EVEN"])
    tiles = tiles_of(p, tile, SOURCES[0], mat1, mat2, slice_k, unit, even=even)
    if tiles is None:
        return None
    bm = p.pattern.blocksize[0]
    right = mat2 if by == "across" else mat2.swapaxes(-1, -2)
    maps = bytes(2 * LINE_BYTES)  # of matrices that are not read
    if p.inner:
        # Of mat2 the columns of a unit: a box has these side by side, or one below the other.
        box = (slice_k, unit * right.itemsize) if by == "across" else (unit, LINE_BYTES)
        maps = rows_map(mat1, min(bm, tile.tile_m)) + rows_map(right, *box)
    blocks = min(tiles.units if even else tiles.count, multiprocessors())
    if not even and tiles.count <= _FEW * multiprocessors():
        blocks = tiles.count
    product = Launch(
        kernel(SOURCES[0], ARCHS, **tiles.defines, **tile.defines),
        (blocks,),
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
