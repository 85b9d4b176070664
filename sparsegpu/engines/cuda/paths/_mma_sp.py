"""What the portable paths through mma.sp share: those of matrices and of blocks."""

from __future__ import annotations

from ...._math import ceil_div

#: Packed bytes of one step of k, steps of a slice, and slices in shared memory at once.
STEP_BYTES, STEPS, STAGES = 32, 2, 3
#: Threads of a block.
THREADS = 128


def stage_bytes(tile_m: int, tile_n: int) -> int:
    """Return STAGE_BYTES of the sources: one slice of both operands."""
    return STEPS * STEP_BYTES * (tile_m + 2 * tile_n)


def tile_columns(n: int, tiles: int, processors: int) -> int:
    """Return the width of a tile: 128 columns where every multiprocessor gets two such tiles.

    ``tiles`` is the number of row tiles of 128 rows, of all matrices.

    Examples
    --------
    >>> tile_columns(20, 64, 132), tile_columns(128, 64, 132), tile_columns(4096, 64, 132)
    (32, 64, 128)
    """
    wide = tiles * ceil_div(n, 128) >= 2 * processors
    return next((t for t in (16, 32, 64) if t >= n), 128 if wide else 64)
