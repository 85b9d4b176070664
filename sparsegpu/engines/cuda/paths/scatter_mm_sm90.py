"""Products of 16-bit blocks, added where lists say, through wgmma (``scatter_mm_sm90.cu``).

Blocks of multiples of 64 rows and columns; blocks and others that tensor maps describe.
"""

from __future__ import annotations

from ...._math import ceil_div
from ..runtime.architectures import HOPPER
from ..runtime.device import multiprocessors
from ..runtime.launch import Launch, kernel
from ..runtime.types import ctype
from ..runtime.view import matrix_view
from . import _scatter
from ._facts import HALVES, INDICES, always
from ._fields import Fields
from ._matrix_maps import LINE_BYTES, described, numbers, rows_map
from ._scatter import Scatter, ScatterFacts, pick_group_size, scatter_arguments
from ._sm90 import MOST_STAGES, RESERVED, SHARED, covering
from ._tile import Tile
from ._tma import INT32

NAME = "wgmma"
SOURCES = ("scatter_mm_sm90",)
DTYPES, ARCHS = HALVES, HOPPER
TENSOR_CORES = True
BY_ADDRESS = INDICES

_SIDE = 64  # of a slice of a block
_VECTOR = 8  # elements in 16 bytes
_FEWEST_TERMS = 256
_STAGING = 4 * 16 * 40 * 4  # bytes of the warps of a team
_TEAMS = {64: 3, 128: 2, 256: 2}  # by the columns of a tile

facts, examples, epilogues = Scatter.facts, _scatter.examples, _scatter.epilogues
worth_measuring = always


def pays(f: ScatterFacts) -> bool:
    """Return whether it is the fastest: long sums, of others that begin at multiples of 16 bytes.

    Where sums are short, adding them to the accumulators takes the time.
    """
    return f.columns % _VECTOR == 0 and f.terms >= _FEWEST_TERMS


def serves(p: Scatter) -> bool:
    """Return whether tensor maps describe blocks and others, and 32 bits count their places."""
    sizes = (*p.blocks.shape, *p.others.shape)
    return described(p.blocks) and described(p.others) and max(sizes) < INT32


def tile(f: ScatterFacts, fields: Fields) -> Tile | None:
    """Return the tile; None for other blocks.

    ``fields`` may say ``tile_m``, ``tile_n``, ``teams`` of a thread block, ``stages`` of a team and
    ``group_size``.

    Examples
    --------
    >>> import numpy as np
    >>> f16 = np.dtype("float16")
    >>> f = ScatterFacts(form="pairs", dtype=f16, blocksize=(64, 64), columns=64)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_n, chosen.threads, chosen.defines["STAGES"]
    (64, 512, 4)
    """
    ms, ks = f.blocksize
    if ms % _SIDE or ks % _SIDE or not f.vectors:
        return None
    tile_m = fields.pick("tile_m", _SIDE, (_SIDE,))
    tile_n = fields.pick("tile_n", covering(f.columns, tuple(_TEAMS)), tuple(_TEAMS))
    stage = (tile_m + tile_n) * LINE_BYTES

    def fitting(teams: int) -> int:
        return min(((SHARED - RESERVED) // teams - _STAGING) // stage, MOST_STAGES)

    teams = fields.pick("teams", _TEAMS[tile_n], [n for n in (1, 2, 3) if fitting(n) >= 2])
    stages = fields.pick("stages", fitting(teams), range(2, fitting(teams) + 1))
    names = {
        "FORMAT": f.form,
        "T": ctype(f.dtype),
        "KS": ks,
        "TILE_N": tile_n,
        "TEAMS": teams,
        "STAGES": stages,
        "GROUP_SIZE": pick_group_size(f, fields, tile_m),
    }
    shared_memory = teams * (stages * stage + _STAGING) + 1024
    return Tile(tile_m, tile_n, 128 * (teams + 1), names, shared_memory)


def launches(p: Scatter, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    a = scatter_arguments(p, tile, SOURCES[0])
    maps = rows_map(p.blocks, _SIDE) + rows_map(p.others, _SIDE)
    matrices = numbers(p.blocks, p.blocks.shape[:1]) + numbers(p.others, a.stack)
    matrices += matrix_view(p.others, a.stack)
    teams = tile.defines["TEAMS"]
    return (
        Launch(
            kernel(SOURCES[0], ARCHS, **a.defines, **tile.defines),
            (min(ceil_div(a.parts, teams), multiprocessors()),),
            (tile.threads,),
            (maps, matrices, a.accumulators, *a.others),
            tile.shared_memory,
        ),
    )
