"""BSR @ a few columns (``bsr_addmm_vector.cu``): a team of lanes streams the blocks of a row."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from ...._arrays import accumulator_dtype
from ...._math import ceil_div, power_of_two_from
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _few_columns
from ._facts import FLOATS, Facts, always
from ._few_columns import Tile, rounds_of, shape_names, small_blocks
from ._fields import Fields
from ._product import Product

NAME = "vector"
SOURCES = ("bsr_addmm_vector",)
DTYPES, ARCHS = (*FLOATS, "int8", "complex64", "complex128"), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = _few_columns.BY_ADDRESS

facts, serves, pays = _few_columns.facts, _few_columns.serves, _few_columns.pays
worth_measuring = always

_BLOCKS_OF_LANE = 4  # of a row, where one lane takes a block; twice as many where two do
_MOST_REGISTERS = 104  # for sums and blocks: four thread blocks of 128 threads stay resident
_OTHER_REGISTERS = 30
_MOST_PRODUCTS = 2048  # of a lane and a block; they are unrolled, more take minutes to compile
_WIDE_REGISTERS = 14  # more of them, where sums are of 64 bits
_DEEPEST = {8: 3, 16: 2}  # blocks that a lane loads at once, by the bytes of its sums
_SECTOR, _LONG_ROW = 32, 16  # bytes; blocks
_MOST_LANE_BLOCK = 64  # bytes of a block that a lane takes as vectors, for several columns


class _Lanes(NamedTuple):
    """How lanes share a block, and the columns of ``dense``.

    Attributes
    ----------
    rows, width, groups, columns : int
        The kernel's RL, CV, NG and NV.
    x_vector : int
        The kernel's X_VECTOR.
    together : bool
        A lane's rows are one vector.
    vectors : bool
        Blocks are loaded as vectors, for several columns.
    """

    rows: int
    width: int
    groups: int
    columns: int
    x_vector: int
    together: bool
    vectors: bool


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return how the lanes of a warp share the blocks.

    ``fields`` may say ``unroll``, ``warps``, ``resident``, ``stream`` and ``rounds``.

    Examples
    --------
    >>> import numpy as np
    >>> f32, shape = np.dtype("float32"), (4096, 4096, 1)
    >>> f = Facts(dtype=f32, shape=shape, blocksize=(4, 4), rows=1024, row_blocks=27, vector_k=4)
    >>> defines = tile(f, Fields()).defines
    >>> defines["TEAM"], defines["RL"], defines["CV"]
    (8, 4, 4)
    """
    if not small_blocks(f.dtype, f.blocksize, f.columns):
        return None
    (bm, bk), columns, row_blocks = f.blocksize, f.columns, f.row_blocks
    item, acc = f.dtype.itemsize, accumulator_dtype(f.dtype).itemsize
    rl, cv, groups, nv, x_vector, together, vectors = _lanes(f)
    across = ceil_div(bk, cv)
    if ceil_div(bm, rl) * cv * nv > _MOST_PRODUCTS:
        return None
    lanes = rl * across * groups
    team = power_of_two_from(lanes)
    while team < 32 and row_blocks > _BLOCKS_OF_LANE * lanes * (team // lanes):
        team *= 2
    sums = ceil_div(bm, rl) * nv * acc // 4
    loads = ceil_div(bm, rl) * max(cv * item // 4, 1) + cv * nv * acc // 4
    loads += 4 if columns == 1 else 6  # an index and two addresses
    blocks = max(ceil_div(ceil(row_blocks), team // lanes), 1)
    single = rl == cv == 1  # elements of the blocks are loaded one by one
    deepest, fewest = 4 + (acc >= 8 or vectors), 4
    if vectors and acc >= 8:
        deepest = 1  # twice as many thread blocks are worth more than two blocks in flight
    elif single and acc >= 8:
        deepest, fewest = _DEEPEST[acc] if columns == 1 else 4, 2
    depth, resident = _depth(blocks, sums, loads, acc >= 8, deepest, fewest)
    fitting = [u for u in (1, 2, 3, 4, 5) if u <= depth or sums + u * loads <= 2 * _MOST_REGISTERS]
    unroll = fields.pick("unroll", depth, fitting)
    warps = fields.pick("warps", 4, (2, 4, 8))
    room = 2048 // (warps * (sums + unroll * loads + _OTHER_REGISTERS // 2))
    resident = fields.pick("resident", resident, range(2, max(min(room, 8), resident) + 1))
    # Single elements are streamed where those of a block's row fill a sector, and rows are long.
    stream = rl > 1 or cv > 1 or (single and bk * item >= _SECTOR and row_blocks >= _LONG_ROW)
    names = {
        "TEAM": team,
        "RL": rl,
        "CV": cv,
        "NG": groups,
        "NV": nv,
        "UNROLL": unroll,
        "X_VECTOR": x_vector,
        "CONTIGUOUS_ROWS": int(together),
        "STREAM": fields.pick("stream", int(stream), (0, 1)),
        "WARPS": warps,
        "RESIDENT": resident,
    }
    # With more rows for each warp, the warps of the chip read at places far apart.
    rounds = rounds_of(f, 32 // team, 2, fields)
    return Tile(32 // team, warps, rounds, shape_names(f) | names)


def _lanes(f: Facts) -> _Lanes:
    (bm, bk), columns = f.blocksize, f.columns
    item, acc = f.dtype.itemsize, accumulator_dtype(f.dtype).itemsize
    most = max(16 // item, 1)
    vector = min(bk & -bk, most, max(f.data_alignment // item, 1))
    rows_of_dense = f.vector_n > 1 and columns > 1
    if rows_of_dense:
        nv = min(f.vector_n, most, columns & -columns)
        while nv > 1 and bm * nv * acc > 128:
            nv //= 2
        groups = columns // nv
        rows_of_dense = groups & (groups - 1) == 0
    # Vectors of a block can be streamed past L2, which then keeps more of `dense`.
    vectors = rows_of_dense and vector > 1 and item >= 4 and bm * vector * item <= _MOST_LANE_BLOCK
    if rows_of_dense:
        x_vector, width = 2, vector if vectors else 1
    else:
        x_vector = 1 if vector > 1 and f.vector_k % vector == 0 else 0
        width = vector if x_vector else 1
        groups, nv = 1, columns
        while groups < columns and (nv * width > 16 or nv * acc > 64 or nv * bm * acc > 128):
            groups *= 2
            nv = ceil_div(columns, groups)
    while ceil_div(bk, width) * groups > 32:
        width *= 2
        x_vector = x_vector if x_vector == 2 else 0
    across, rows, together = ceil_div(bk, width), 1, False
    if columns == 1 and across & (across - 1) == 0:
        rows = min(bm & -bm, 32 // (across * groups))
        both = min(most // width, rows) if x_vector and across == 1 else 1
        together = both > 1 and f.data_alignment >= both * width * item
        rows //= both if together else 1
    elif vectors and across == 1:
        block = bm * bk * item
        together = f.data_alignment >= min(block & -block, 16)
    return _Lanes(rows, width, groups, nv, x_vector, together, vectors)


def launches(p: Product, tile: Tile) -> tuple[Launch, ...]:
    """Return the launches that compute a product."""
    return _few_columns.launches(SOURCES[0], p, tile)


def _depth(
    blocks: int, sums: int, registers: int, wide: bool, deepest: int, fewest: int
) -> tuple[int, int]:
    """Return how many blocks a lane loads at once, and how many thread blocks are resident then.

    As many as leave at most a fifth of the loads without a block: a row has ``blocks`` for a lane.

    Parameters
    ----------
    blocks : int
    sums, registers : int
        Registers for the lane's sums, and for each block in flight.
    wide : bool
        Sums are of 64 bits: more blocks in flight are faster then, but not a complete row.
    deepest, fewest : int
        No more blocks at once; no fewer thread blocks than these, even if loads wait for registers.
    """
    depths = [u for u in (5, 4, 3, 2) if u <= deepest]
    if wide:
        depths = [u for u in depths if u <= max(ceil_div(blocks, 2), 2)]
    fitting = [u for u in depths if sums + u * registers <= _MOST_REGISTERS] or [1]
    unroll = next((u for u in fitting if 5 * ceil_div(blocks, u) * u <= 6 * blocks), fitting[-1])
    needed = sums + unroll * registers + _OTHER_REGISTERS + _WIDE_REGISTERS * wide
    resident = 512 // (ceil_div(needed, 8) * 8)  # registers are handed out by eights
    return unroll, min(max(resident, fewest if unroll > 1 else 2), 8)
