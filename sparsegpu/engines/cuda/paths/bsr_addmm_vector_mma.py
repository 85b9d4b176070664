"""BSR @ up to eight columns on float64 tensor cores (``bsr_addmm_vector_mma.cu``).

Blocks of several block rows share a fragment. float32 is multiplied as float64.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from ...._math import ceil_div
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _few_columns
from ._facts import Facts, always
from ._few_columns import Tile, rounds_of, shape_names, small_blocks
from ._fields import Fields
from ._product import Product

NAME = "vector_mma"
SOURCES = ("bsr_addmm_vector_mma",)
DTYPES, ARCHS = ("float32", "float64"), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = _few_columns.BY_ADDRESS

facts, serves = _few_columns.facts, _few_columns.serves
pays = worth_measuring = always

_SIDES = (2, 4, 8)
_TERMS = 2  # of a lane, loaded at once
_DEPTHS = (4, 5, 6, 3)  # products of fragments whose operands a lane loads at once, best first
_NARROW_DEPTHS = (5, 4, 6, 3)  # the same for float32
#: Compute capabilities whose float64 tensor cores keep up with memory.
_FULL_RATE = ((8, 0), (9, 0), (10, 0))


def _fills_fragments(f: Facts) -> bool:
    """Return whether the kernel is faster than the one without tensor cores.

    float32 pays for its conversions.
    """
    (bm, bk), columns = f.blocksize, f.columns
    sides = bm in _SIDES and bk in _SIDES
    if f.capability not in _FULL_RATE or not sides or f.data_alignment < 16:
        return False
    if f.dtype == np.float32:
        # A lane of `vector` loads half a row of dense for a block of 4 x 4 that it takes alone.
        gathers = bm == bk == 4 and columns == 8 and f.vector_n >= 4
        return min(bm, bk) >= 4 and 4 <= columns <= 8 and not gathers
    # A single column leaves most of a fragment empty, which still pays for 2 x 2 and 8 x 8 blocks.
    return (1 if bm == bk != 4 else 2) <= columns <= 8


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return how a warp shares the work.

    ``fields`` may say ``unroll``, ``warps``, ``resident`` and ``rounds``.

    Examples
    --------
    >>> f64, shape = np.dtype("float64"), (4096, 4096, 8)
    >>> f = Facts(dtype=f64, shape=shape, blocksize=(4, 4), rows=1024, row_blocks=20)
    >>> chosen = tile(f, Fields())
    >>> chosen.teams, chosen.warps, chosen.defines["UNROLL"], chosen.defines["RESIDENT"]
    (1, 4, 5, 5)
    """
    if not (small_blocks(f.dtype, f.blocksize, f.columns) and _fills_fragments(f)):
        return None
    bm, bk = f.blocksize
    products = max(ceil(f.row_blocks * bk / (4 * _TERMS)), 1)
    narrow = f.dtype == np.float32
    depth = min(
        _NARROW_DEPTHS if narrow else _DEPTHS, key=lambda depth: ceil_div(products, depth) * depth
    )
    unroll = fields.pick("unroll", depth, range(2, 9))
    tall = narrow and bm == 8  # these want fewer warps, and to be replaced sooner
    warps = fields.pick("warps", 2 if tall else 4, (2, 4, 8))
    plain = not f.split_rows and f.matrices == 1
    single = f.columns == 1 and bk == 2
    resident = (4 + (plain and not tall) + (narrow and not tall) + single) * 4 // warps
    resident = fields.pick("resident", resident, range(2, max(resident, 24 // warps) + 1))
    teams = 8 // max(bm, next(n for n in (1, *_SIDES) if n >= f.columns))
    # Where most loads are gathers, starting a warp costs more than reading rows far apart.
    rounds = rounds_of(f, teams, 8 if f.columns > bm else 3, fields)
    names = shape_names(f) | {
        "UNROLL": unroll,
        "X_VECTOR": int(f.vector_k % _TERMS == 0),
        "WARPS": warps,
        "RESIDENT": resident,
    }
    return Tile(teams, warps, rounds, names)


def launches(p: Product, tile: Tile) -> tuple[Launch, ...]:
    """Return the launches that compute a product."""
    return _few_columns.launches(SOURCES[0], p, tile)
