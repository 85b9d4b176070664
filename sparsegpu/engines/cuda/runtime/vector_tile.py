"""How the lanes of ``bsr_addmm_vector.cu`` share blocks: pure Python, testable without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import numpy as np

from ...._arrays import accumulator_dtype
from .._blocks import ceil_div
from .fields import Fields

#: More columns than this are no longer "a few vectors".
MOST_COLUMNS = 16
#: More rows than this, one after the other, are never worth a try.
MOST_ROUNDS = 8
_MOST_BLOCK_BYTES = 4096
_MOST_SUM_BYTES = 256  # of a lane
_BLOCKS_OF_LANE = 4  # of a row, where one lane takes a block; twice as many where two do
_MOST_REGISTERS = 104  # for sums and blocks: four thread blocks of 128 threads stay resident
_OTHER_REGISTERS = 30
_WIDE_REGISTERS = 14  # more of them, where sums are of 64 bits


class FewColumns(NamedTuple):
    """What the choice of a tile depends on, here and in `fragment_tile`.

    Attributes
    ----------
    cc : (int, int)
        Compute capability.
    dtype : dtype
    blocksize : (bm, bk)
    columns : int
        N.
    row_blocks : float
        Blocks of a row, on average.
    data_alignment : int
        In bytes, of the first block.
    along_k, along_n : int
        How many elements of a column, or of a row, of ``dense`` can be loaded at once.
    plain : bool
        One matrix and whole rows.
    """

    cc: tuple[int, int]
    dtype: np.dtype
    blocksize: tuple[int, int]
    columns: int
    row_blocks: float
    data_alignment: int = 16
    along_k: int = 1
    along_n: int = 1
    plain: bool = True


@dataclass(frozen=True, slots=True)
class VectorTile:
    """How the lanes of a warp share blocks: the names are those of ``bsr_addmm_vector.cu``."""

    team: int
    row_lanes: int
    block_columns: int  # CV
    column_groups: int  # NG
    columns: int  # NV
    unroll: int
    x_vector: int
    together: int = 0
    stream: int = 0
    ahead: int = 1
    warps: int = 4
    resident: int = 8
    rounds: int = 2  # most rows one after the other: of more, those read at once lie far apart

    @property
    def source(self) -> str:
        """The kernel."""
        return "bsr_addmm_vector"

    @property
    def teams(self) -> int:
        """Teams of a warp: the rows that it takes at once."""
        return 32 // self.team

    def defines(self, blocksize: tuple[int, int], columns: int) -> dict[str, int]:
        """Return the ``-D`` names of the kernel."""
        return {
            "BM": blocksize[0],
            "BK": blocksize[1],
            "COLUMNS": columns,
            "TEAM": self.team,
            "RL": self.row_lanes,
            "CV": self.block_columns,
            "NG": self.column_groups,
            "NV": self.columns,
            "UNROLL": self.unroll,
            "X_VECTOR": self.x_vector,
            "CONTIGUOUS_ROWS": self.together,
            "STREAM": self.stream,
            "AHEAD": self.ahead,
            "WARPS": self.warps,
            "RESIDENT": self.resident,
        }


def _power_of_two_from(n: int) -> int:
    return 1 << (n - 1).bit_length()


def takes_blocks(dtype: np.dtype, blocksize: tuple[int, int], columns: int) -> bool:
    """Whether the kernel takes such blocks and so many columns.

    Examples
    --------
    >>> takes_blocks(np.dtype("float64"), (8, 8), 4), takes_blocks(np.dtype("float64"), (64, 64), 1)
    (True, False)
    """
    bm, bk = blocksize
    return (
        columns <= MOST_COLUMNS
        and bm * bk * dtype.itemsize <= _MOST_BLOCK_BYTES
        and bm * accumulator_dtype(dtype).itemsize <= _MOST_SUM_BYTES
        and bk <= 32 * (16 // dtype.itemsize)
    )


def vector_tile(product: FewColumns, fields: Fields | None = None) -> VectorTile:
    """Return how a warp shares the work.

    Parameters
    ----------
    product : FewColumns
    fields : Fields, optional
        ``unroll``, ``warps``, ``resident``, ``stream`` and ``ahead``, where they are not to be
        chosen here. The caller may ask it for others, too, and finishes it.

    Examples
    --------
    >>> tile = vector_tile(FewColumns((9, 0), np.dtype("float32"), (4, 4), 1, 27, along_k=4))
    >>> tile.team, tile.row_lanes, tile.block_columns
    (8, 4, 4)
    """
    _, dtype, (bm, bk), columns, row_blocks, data_alignment, along_k, along_n, _ = product
    item, acc = dtype.itemsize, accumulator_dtype(dtype).itemsize
    most = max(16 // item, 1)
    even = power_of_two_in(bk)
    vector = min(even, most, max(data_alignment // item, 1))
    if along_n > 1 and columns > 1:
        x_vector, nv = 2, min(along_n, most, power_of_two_in(columns))
        while nv > 1 and bm * nv * acc > 128:
            nv //= 2
        groups, cv, rl = columns // nv, 1, 1
    if not (along_n > 1 and columns > 1) or groups & (groups - 1):
        x_vector = 1 if vector > 1 and along_k % vector == 0 else 0
        cv = vector if x_vector else 1
        groups = 1
        while groups < columns and (
            ceil_div(columns, groups) * cv > 16
            or ceil_div(columns, groups) * acc > 64
            or ceil_div(columns, groups) * bm * acc > 128
        ):
            groups *= 2
        nv, rl = ceil_div(columns, groups), 1
    while ceil_div(bk, cv) * groups > 32:
        cv *= 2
        x_vector = x_vector if x_vector == 2 else 0
    across, together = ceil_div(bk, cv), 0
    if columns == 1 and across & (across - 1) == 0:
        rl = min(power_of_two_in(bm), 32 // (across * groups))
        both = min(most // cv, rl) if x_vector and across == 1 else 1
        together = int(both > 1 and data_alignment >= both * cv * item)
        rl //= both if together else 1
    lanes = rl * across * groups
    team = _power_of_two_from(lanes)
    while team < 32 and row_blocks > _BLOCKS_OF_LANE * lanes * (team // lanes):
        team *= 2
    sums = ceil_div(bm, rl) * nv * acc // 4
    loads = ceil_div(bm, rl) * max(cv * item // 4, 1) + cv * nv * acc // 4
    loads += 4 if columns == 1 else 6  # an index and two addresses
    blocks = max(ceil_div(ceil(row_blocks), team // lanes), 1)
    depth, resident = _depth(blocks, sums, loads, wide=acc >= 8)
    fields = fields or Fields()
    fitting = [u for u in (1, 2, 3, 4, 5) if u <= depth or sums + u * loads <= 2 * _MOST_REGISTERS]
    unroll = fields.pick("unroll", depth, fitting)
    warps = fields.pick("warps", 4, (2, 4, 8))
    room = 2048 // (warps * (sums + unroll * loads + _OTHER_REGISTERS // 2))
    resident = fields.pick("resident", resident, range(2, max(min(room, 8), resident) + 1))
    ahead = int(not (dtype == np.float64 and rl == cv == columns == 1))
    return VectorTile(
        team=team,
        row_lanes=rl,
        block_columns=cv,
        column_groups=groups,
        columns=nv,
        unroll=unroll,
        x_vector=x_vector,
        together=together,
        stream=fields.pick("stream", int(rl > 1 or cv > 1), (0, 1)),
        ahead=fields.pick("ahead", ahead, (0, 1)),
        warps=warps,
        resident=resident,
    )


def _depth(blocks: int, sums: int, registers: int, *, wide: bool) -> tuple[int, int]:
    """Return how many blocks a lane loads at once, and how many thread blocks have room then.

    As many as leave at most a fifth of the loads without a block: a row has ``blocks`` for a lane.

    Parameters
    ----------
    blocks : int
    sums, registers : int
        Registers for the lane's sums, and for each block that is under way.
    wide : bool
        Sums are of 64 bits: these want more under way, but not all of a row at once.
    """
    depths = [u for u in (5, 4, 3, 2) if u <= max(ceil_div(blocks, 2), 2)] if wide else (4, 3, 2)
    fitting = [u for u in depths if sums + u * registers <= _MOST_REGISTERS] or [1]
    unroll = next((u for u in fitting if 5 * ceil_div(blocks, u) * u <= 6 * blocks), fitting[-1])
    needed = sums + unroll * registers + _OTHER_REGISTERS + _WIDE_REGISTERS * wide
    resident = 512 // (ceil_div(needed, 8) * 8)  # registers are handed out by eights
    return unroll, min(max(resident, 4 if unroll > 1 else 2), 8)


def power_of_two_in(n: int) -> int:
    """Return the largest power of two that divides ``n``."""
    return n & -n
