"""Tiles of the BSR products at full precision (``bsr_addmm_f32.cu``, ``bsr_addmm_f64.cu``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...._math import ceil_div
from ..runtime.architectures import LEAST_SHARED_MEMORY
from ..runtime.types import ctype
from ._facts import INDICES, Facts
from ._fields import Fields
from ._tile import Tile

BY_ADDRESS = INDICES

#: Columns of a narrow tile.
NARROW = 64
_MOST_ROWS = 64
_REGISTERS = 65536  # of a multiprocessor
_OTHER_REGISTERS = 40  # of a thread, besides its sums


class Shape(NamedTuple):
    """What a thread block computes, and with what.

    ``tile_m`` x ``tile_n`` outputs, ``tile_k`` terms a stage, ``stages`` stages in shared memory,
    by ``warps_m`` x ``warps_n`` warps; a multiprocessor is to hold ``resident`` thread blocks.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    warps_m: int
    warps_n: int
    resident: int
    stages: int


def full_precision_tile(
    f: Facts,
    fields: Fields,
    choose: Callable[[int, int, bool, bool], Shape],
    stage_bytes: Callable[[Shape], int],
    buffer_bytes: Callable[[Shape], int],
) -> Tile:
    """Return the tile for blocks of bm x bk, measured best.

    Blocks of more than 64 rows are divided evenly into several tiles. Operands that are not copied
    in 16-byte vectors leave fewer registers for outputs.

    Parameters
    ----------
    f : Facts
    fields : Fields
        ``tile_n``, ``stages`` and ``resident``.
    choose : callable
        Returns the shape for rows, bk, narrow or wide, and whether operands are copied in vectors.
    stage_bytes, buffer_bytes : callable
        Return the shared memory of a stage, and of the epilogue store.
    """
    (bm, bk), size = f.blocksize, f.itemsize
    in_vectors = f.layout == "rows" and f.columns * size % 16 == 0
    dense = "vectors" if in_vectors else "columns" if f.dense_by_column else "rows"
    data = "columns" if f.transposed else "vectors" if f.rows_aligned(16) else "rows"
    vectors = dense == data == "vectors"
    rows = ceil_div(bm, ceil_div(bm, _MOST_ROWS))
    shape = choose(rows, bk, f.columns <= NARROW, vectors)
    widths = sorted({choose(rows, bk, narrow, vectors).tile_n for narrow in (True, False)})
    tile_n = fields.pick("tile_n", shape.tile_n, widths)
    if tile_n != shape.tile_n:
        shape = choose(rows, bk, tile_n == NARROW, vectors)
    stage = stage_bytes(shape)
    room = LEAST_SHARED_MEMORY // stage
    stages = fields.pick("stages", min(shape.stages, room), [s for s in (2, 3, 4) if s <= room])
    threads = 32 * shape.warps_m * shape.warps_n
    sums = shape.tile_m * shape.tile_n // threads * size // 4
    most = _REGISTERS // (threads * (sums + _OTHER_REGISTERS))
    most = max(most, shape.resident)
    resident = fields.pick("resident", shape.resident, range(1, most + 1))
    shape = shape._replace(stages=stages, resident=resident)
    names = {name.upper(): value for name, value in shape._asdict().items()}
    of_blocks: dict[str, Any] = {"T": ctype(f.dtype), "TRANSPOSED": int(f.transposed)}
    of_blocks |= {"BM": bm, "BK": bk, "DATA": data, "DENSE": dense}
    memory = max(stages * stage, buffer_bytes(shape))
    return Tile(shape.tile_m, shape.tile_n, threads, of_blocks | names, memory)


def terms_of_slice(bk: int, step: int, most: int) -> int:
    """Return the terms of a slice: the largest multiple of the step that divides bk.

    Where none does, the last slice of a block has fewer.
    """
    fewest = ceil_div(bk, most)
    for slices in range(fewest, 3 * fewest + 1):
        if bk % (slices * step) == 0:
            return bk // slices
    return ceil_div(bk, fewest * step) * step
