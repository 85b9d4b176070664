"""The tile of the Hopper product ``bsr_addmm_sm90.cu``: pure Python, testable without a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .fields import Fields

#: Columns of which a tile of 64 would waste most: not for this kernel.
FEW = 16
TILE_M = 128
STAGE_BYTES_K = 128  # bytes of k that a stage holds
STRIPS = 8 * 2 * 2048  # outputs on their way out, two strips for each of eight warps
THREADS = 384
SHARED = 227 * 1024
RESERVED = 2048  # alignment of the stages, barriers
MOST_STAGES = 8
# Rows are grouped by likeness where even the unions of random rows get shorter by that, and where
# the product is not short beside what finding the order adds to the first call.
SPARSE = 0.25
MANY_COLUMNS = 1024
# Up to which density int8 rows are turned by the kernel: then a tile is brought for few blocks, and
# turning it once for each of them costs less than a copy of all.
_TURN_AGAIN = 0.125


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupTile:
    """What a kernel that shares tiles among block rows is compiled and launched with.

    Attributes
    ----------
    tile_n, stages : int
    step_k : int
        Rows of ``dense`` that are brought at a time.
    slice_m, slices : int
        Rows of a block that a tile holds, and tiles that a block's rows need.
    rows : int
        Block rows that share a tile.
    shared_memory : int
    reorder : int
        Whether similar block rows share tiles, rather than neighbours.
    """

    tile_n: int
    stages: int
    step_k: int
    slice_m: int
    slices: int
    rows: int
    shared_memory: int
    reorder: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block: two warpgroups that multiply, one that brings operands."""
        return THREADS

    @property
    def sums(self) -> int:
        """Accumulators of a tile."""
        return TILE_M * self.tile_n


@dataclass(frozen=True, slots=True, kw_only=True)
class HopperTile(RowGroupTile):
    """The tile of ``bsr_addmm_sm90.cu``; the names are those of the source.

    Attributes
    ----------
    box_m : int
        Rows of the output in a box of transposed blocks.
    turns : int
        Whether the kernel turns row-major int8 itself, in shared memory.
    """

    box_m: int
    turns: int = 0


def hopper_tile(
    dtype: np.dtype,
    blocksize: tuple[int, int],
    columns: int,
    transposed: bool,
    fields: Fields | None = None,
    density: float = 1.0,
) -> HopperTile | None:
    """Return the tile for a product, or None where the kernel does not serve.

    Parameters
    ----------
    dtype : dtype
        Of the operands; float32 is multiplied as TF32.
    blocksize : (bm, bk)
        Of the operand as it is multiplied.
    columns : int
        N.
    transposed : bool
        The blocks lie as (bk, bm).
    fields : Fields, optional
        ``tile_n``, ``stages``, ``reorder`` and ``turns``, where they are not to be chosen here.
    density : float
        Share of the block places that are stored, repeated ones counted again.

    Examples
    --------
    >>> tile = hopper_tile(np.dtype("float16"), (32, 32), 4096, False)
    >>> tile.rows, tile.tile_n, tile.stages
    (4, 256, 4)
    >>> hopper_tile(np.dtype("int8"), (64, 64), 4096, False).step_k
    64
    >>> hopper_tile(np.dtype("float16"), (24, 24), 4096, False)
    """
    bm, bk = blocksize
    size = dtype.itemsize
    if dtype.name not in {"float16", "bfloat16", "int8", "float32"} or bm % 16 or bk * size % 32:
        return None
    if transposed and size != 2:
        return None  # wgmma takes int8 and TF32 with k contiguous only
    if transposed and bm % 64 and bm not in {16, 32}:
        return None  # no swizzle is as wide as such a block's rows
    step_k = next(width // size for width in (STAGE_BYTES_K, 64, 32) if bk * size % width == 0)
    slice_m = min(bm, TILE_M)
    rows = TILE_M // slice_m
    fields = fields or Fields()
    # int8 outputs leave in strips of 128 columns.
    widths = (128, 256) if size == 1 else (64, 128, 256)
    covering = next((n for n in widths if n >= columns), widths[-1])
    tile_n = fields.pick("tile_n", covering, widths)
    stage = (rows * slice_m + tile_n) * STAGE_BYTES_K
    most = min((SHARED - RESERVED - STRIPS) // stage, MOST_STAGES)
    stages = fields.pick("stages", most, range(2, most + 1))
    pays = density <= SPARSE and columns >= MANY_COLUMNS
    reorder = fields.pick("reorder", int(pays), (0, 1) if rows > 1 else (0,))
    # Two warps turn what is brought, each for a step of a stage: where steps are not narrow. What
    # registers they take, the fragments of smaller blocks would need.
    can_turn = size == 1 and slice_m % 64 == 0 and step_k >= STAGE_BYTES_K // 2
    turns = 0
    if can_turn:
        turns = fields.pick("turns", int(density <= _TURN_AGAIN), (0, 1))
    fields.finish()
    return HopperTile(
        tile_n=tile_n,
        stages=stages,
        step_k=step_k,
        slice_m=slice_m,
        slices=-(-bm // TILE_M),
        rows=rows,
        box_m=64 if slice_m % 64 == 0 else slice_m,
        shared_memory=stages * stage + STRIPS + 1024,
        reorder=reorder,
        turns=turns,
    )
