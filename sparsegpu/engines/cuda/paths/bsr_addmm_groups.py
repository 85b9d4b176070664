"""BSR @ dense of 16 bits on tensor cores from 8.0 on; row groups share tiles of ``dense``.

``cuda_src/bsr_addmm_groups.cu`` says how. Operands that it cannot load in aligned 16-byte vectors
are first copied to workspace: blocks whose rows are not multiples of 16 bytes, and an unaligned
``dense``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...._math import ceil_div
from .._grid import THREADS, grid
from .._schedule import row_groups
from ..runtime.architectures import PORTABLE
from ..runtime.launch import MAX_GRID, Launch, address, kernel
from ..runtime.structs import kernel_struct
from ..runtime.submission import workspace
from ..runtime.types import ctype
from ..runtime.view import MAX_BATCH_DIMS, batch_dims, matrix_view
from ._dense_lines import aligned_lines
from ._facts import HALVES, INDICES, Facts, always
from ._fields import Fields
from ._product import Product
from ._tma import INT32

NAME = "groups"
SOURCES = ("bsr_addmm_groups",)
DTYPES, ARCHS = HALVES, PORTABLE
TENSOR_CORES = True
BY_ADDRESS = INDICES
TOGETHER = ("SLICE_ROWS", "TILE_N")

#: Fewer columns leave most of a tile empty.
FEWEST_COLUMNS = 72
#: Elements of a 16-byte vector: rows of ``out`` and of the copies are multiples of it.
VECTOR = 8
_FEWEST_TERMS = 6  # columns of a block
_FEW_BLOCKS = 8  # of a row
_SMALL = 8  # rows, and columns, of blocks that are many
_TALL = 64  # rows; taller blocks have two warps to a column
_LOW, _ALONE = 16, 32  # rows; those between have a tile to themselves, of two warps
_NARROW = 128  # columns
_WARP = 64 * 64  # outputs, of which a lane keeps 128 in registers
_WARPS = 8  # of a multiprocessor with so many registers each
_FEWEST_WARPS = 4
_MOST_RESIDENT = 4
_STEADY = 32  # terms: slices of multiples of it are multiplied in a loop without branches
#: Rows of such a slice: with more, its sums and the next fragments do not fit into the registers
#: that `_MOST_RESIDENT` thread blocks leave a thread.
_LOW_SLICE = 40
_RASTER = 512  # columns of a raster of tiles
_MOST_STAGES = 6
_MOST_SLOTS = 64  # blocks of a stage: one word has a presence bit for each
_BUFFER_ROWS = 32  # of the epilogue's store buffer
_RESERVED = 1024  # of the multiprocessor's shared memory for each of its thread blocks

facts, worth_measuring = Product.facts, always


def pays(f: Facts) -> bool:
    """Return whether blocks are few, or have terms enough that finding them is not most work."""
    return f.blocksize[1] >= _FEWEST_TERMS or f.row_blocks <= _FEW_BLOCKS


@dataclass(frozen=True, slots=True)
class Tile:
    """What a thread block computes.

    Attributes
    ----------
    group : int
        Block rows that share a tile.
    parts : int
        Tiles that a block's rows need.
    tile_n, threads : int
    raster_width : int
        Column tiles that thread blocks take side by side.
    shared_memory : int
    defines : dict
        The ``-D`` names of the kernel.
    """

    group: int
    parts: int
    tile_n: int
    threads: int
    raster_width: int
    shared_memory: int
    defines: dict[str, Any]


def serves(p: Product) -> bool:
    """Return whether blocks are contiguous and counted in 32 bits."""
    return (
        not p.empty
        and p.data.flags.c_contiguous
        and p.pattern.batch_size in {1, prod(p.batch)}
        and p.pattern.block_shape[1] < INT32
        and p.dense.ndim - 2 <= MAX_BATCH_DIMS
    )


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return the tile, measured best on an H200; None for few columns, or an odd number of them.

    ``fields`` may say ``tile_m`` (rows, of which a group fills as many as it can), ``tile_n``,
    ``stage_k`` (terms of a stage), ``stages`` and ``raster_width``.

    Examples
    --------
    >>> f16, shape = np.dtype("float16"), (4096, 4096, 4096)
    >>> small, odd = (Facts(dtype=f16, shape=shape, blocksize=(b, b)) for b in (16, 23))
    >>> chosen = tile(small, Fields())
    >>> chosen.group, chosen.tile_n, chosen.defines["STEPS"]
    (4, 256, 4)
    >>> tile(odd, Fields()).defines["SLICE_ROWS"]
    24
    >>> tile(small, Fields({"tile_m": 32})).group
    2
    """
    (bm, bk), columns = f.blocksize, f.columns
    if columns < FEWEST_COLUMNS or columns % VECTOR:
        return None
    by_row = f.layout != "columns" or bk % VECTOR != 0  # others are copied to a row-major matrix
    narrow, small = columns <= _NARROW, bm <= _SMALL and bk <= _SMALL
    tall = bm > _TALL and not narrow
    alone = _LOW < bm <= _ALONE and bk % _STEADY == 0 and not narrow
    tile_m = fields.pick("tile_m", 128 if tall else 32 if small or alone else 64, (32, 64, 128))
    tile_n = fields.pick("tile_n", 128 if narrow or bm <= _SMALL else 256, (128, 256))
    alone = alone and tile_m == 32
    warps = max(tile_m * tile_n // _WARP, 2 if alone else _FEWEST_WARPS)
    resident = min(_WARPS * _WARP // (tile_m * tile_n), _MOST_RESIDENT)
    room = (f.shared_memory + _RESERVED) // resident - _RESERVED

    parts = ceil_div(bm, tile_m)
    warps_m = 2 if ceil_div(bm, parts) > _TALL else 1
    warps_n = warps // warps_m
    slice_m = ceil_div(ceil_div(bm, parts), 8 * warps_m) * 8 * warps_m
    group = max(1, tile_m // slice_m)

    def steps_of(stage_k: int) -> tuple[int, int, int]:
        """Return rows of ``dense`` of a step, steps of a stage, and the bytes of a stage."""
        step_k = ceil_div(ceil_div(bk, ceil_div(bk, stage_k)), 8) * 8
        steps = 1 if step_k < bk else max(1, min(stage_k // step_k, _MOST_SLOTS // group))
        depth = steps * step_k
        right = depth * _pitch(tile_n) if by_row else tile_n * _pitch(depth)
        return step_k, steps, steps * group * slice_m * _pitch(step_k) + right

    short = alone or 2 * steps_of(64)[2] > room
    stage_k = fields.pick("stage_k", 32 if short else 64, (32, 64))
    step_k, steps, stage = steps_of(stage_k)
    if group * steps == 1 and step_k % _STEADY == 0 and slice_m > _LOW_SLICE:
        resident = min(resident, _MOST_RESIDENT - 1)
        room = (f.shared_memory + _RESERVED) // resident - _RESERVED
    most = min(f.shared_memory // stage, _MOST_STAGES)
    buffer_rows = min(_BUFFER_ROWS, group * slice_m // warps_m)
    fewest = max(2, ceil_div(warps_m * buffer_rows * (tile_n + 4 * warps_n) * 4, stage))
    fitting = max(2, min(room // stage, _MOST_STAGES))
    stages = fields.pick("stages", fitting, range(fewest, most + 1))
    raster_width = fields.pick("raster_width", _RASTER // tile_n, (1, 2, 4, 8))
    names = {
        "T": ctype(f.dtype),
        "BM": bm,
        "BK": bk,
        "GROUP": group,
        "SLICE_ROWS": slice_m,
        "STEP_K": step_k,
        "STEPS": steps,
        "STAGES": stages,
        "TILE_N": tile_n,
        "WARPS_M": warps_m,
        "WARPS_N": warps_n,
        "RESIDENT": resident,
        "DENSE": "rows" if by_row else "columns",
    }
    return Tile(group, parts, tile_n, 32 * warps, raster_width, stages * stage, names)


def _pitch(elements: int) -> int:
    """Return the bytes between lines: a power of two, or an odd number of 16-byte vectors."""
    vectors = elements // VECTOR
    return (vectors if vectors & (vectors - 1) == 0 else vectors | 1) * 16


def launches(p: Product, tile: Tile) -> tuple[Launch, ...] | None:
    """Return the launches that compute a product, None where a grid cannot have so many tiles."""
    copies = []
    bk = p.pattern.blocksize[1]
    if p.layout != tile.defines["DENSE"]:
        dense, copy = aligned_lines(p.dense, False)
        p = replace(p, dense=dense)
        copies.append(copy)
    data: Any = address(p.data)
    if p.transposed or bk % VECTOR or p.data.data.ptr % 16:
        data, copy = _padded_blocks(p)
        copies.append(copy)

    schedule = row_groups(p.pattern, tile.group, None if p.order is None else p.order.reshape(-1))
    matrices, batches = p.pattern.batch_size, prod(p.batch)
    groups, n = schedule.groups // matrices, p.out.shape[-1]
    tiles = groups * batches * ceil_div(n, tile.tile_n) * tile.parts
    if tiles > MAX_GRID:
        return None
    problem = kernel_struct(SOURCES[0], "GroupsProblem")(
        groups=groups,
        block_rows=p.pattern.block_shape[0],
        batches=batches,
        n=n,
        raster_width=tile.raster_width,
        pattern_batched=matrices > 1,
    )
    product = Launch(
        kernel(SOURCES[0], INDEX=ctype(schedule.blocks.dtype), **p.defines, **tile.defines),
        (tiles,),
        (tile.threads,),
        (
            matrix_view(p.out, p.batch),
            data,
            matrix_view(p.dense, p.batch),
            batch_dims(p.batch),
            schedule.argument(),
            problem,
            p.epilogue,
        ),
        tile.shared_memory,
    )
    return (*copies, product)


def _padded_blocks(p: Product) -> tuple[Any, Launch]:
    """Return workspace for the blocks, transposed if needed, padded to 16-byte vectors.

    The second is the launch that fills it.
    """
    bm, bk = p.pattern.blocksize
    blocks = p.data.size // (bm * bk)
    vectors = blocks * bm * ceil_div(bk, VECTOR)
    memory = workspace(vectors * VECTOR * p.data.itemsize)
    copy = Launch(
        kernel("bsr_pad_blocks", T=ctype(p.data.dtype), TRANSPOSED=int(p.transposed)),
        grid(ceil_div(vectors, THREADS)),
        (THREADS,),
        (memory, address(p.data), np.int64(vectors), np.int32(bm), np.int32(bk)),
    )
    return memory, copy
