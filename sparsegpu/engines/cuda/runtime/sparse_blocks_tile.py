"""The tile of the Hopper product of 2:4 blocks, ``bsr_semi_structured_addmm_sm90.cu``: pure Python.

Stages hold 128 bytes of k, as those of ``semi_structured_addmm_sm90.cu``; rows are grouped as for
``bsr_addmm_sm90.cu``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .fields import Fields
from .hopper_tile import (
    MANY_COLUMNS,
    MOST_STAGES,
    RESERVED,
    SHARED,
    SPARSE,
    STAGE_BYTES_K,
    STRIPS,
    TILE_M,
    RowGroupTile,
)
from .sparse_tile import PAIRS, pair_bytes

# From which density on so many groups take all panels before the next ones do (measured): they walk
# most columns at about the same time, and what is shared in L2 is the blocks, too. Where little is
# stored, a panel of `dense` is read by as many groups as there are.
_MUCH, _BAND = 0.4, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseBlocksTile(RowGroupTile):
    """The tile of ``bsr_semi_structured_addmm_sm90.cu``; the names are those of the source.

    Attributes
    ----------
    together : int
        Slices of a block that are brought together.
    band : int
        Groups that take all panels before the next ones do; 0: all of them.
    """

    together: int = 1
    band: int = 0


def sparse_blocks_tile(
    dtype: np.dtype,
    blocksize: tuple[int, int],
    columns: int,
    fields: Fields | None = None,
    density: float = 1.0,
) -> SparseBlocksTile | None:
    """Return the tile for a product, or None where the kernel does not serve.

    Parameters
    ----------
    dtype : dtype
        Of the operands; float32 is multiplied as TF32.
    blocksize : (bm, bk)
    columns : int
        N.
    fields : Fields, optional
        ``tile_n``, ``together``, ``stages``, ``reorder`` and ``band``, where they are not to be
        chosen here.
    density : float
        Share of the block places that are stored, repeated ones counted again.

    Examples
    --------
    >>> tile = sparse_blocks_tile(np.dtype("float16"), (128, 128), 4096)
    >>> tile.rows, tile.tile_n, tile.stages
    (1, 256, 4)
    >>> sparse_blocks_tile(np.dtype("float16"), (32, 32), 4096)
    """
    bm, bk = blocksize
    size = dtype.itemsize
    if bm % 64 or bk * size % STAGE_BYTES_K:
        return None
    slice_m = min(bm, TILE_M)
    rows = TILE_M // slice_m
    fields = fields or Fields()
    widths = (128, 256) if size == 1 else (64, 128, 256)  # int8 outputs leave by 128 columns
    covering = next((n for n in widths if n >= columns), widths[-1])
    tile_n = fields.pick("tile_n", covering, widths)
    # Lines of 128 bytes: two slices at a time, where blocks have an even number of them.
    slices_k = bk * size // STAGE_BYTES_K
    together = fields.pick("together", 2, (1, 2) if slices_k % 2 == 0 else (1,))
    stage = tile_n * STAGE_BYTES_K
    slot = together * (TILE_M * STAGE_BYTES_K // 2 + PAIRS * pair_bytes(size))

    def memory(stages: int) -> int:
        return stages * stage + (stages if together == 1 else stages // 2 + 1) * slot

    room = SHARED - RESERVED - STRIPS
    most = max(s for s in range(1, MOST_STAGES + 1) if memory(s) <= room)
    stages = fields.pick("stages", most, range(2, most + 1))
    pays = density <= SPARSE and columns >= MANY_COLUMNS
    reorder = fields.pick("reorder", int(pays), (0, 1) if rows > 1 else (0,))
    band = fields.pick("band", _BAND if density >= _MUCH else 0, (0, 8, 16, 32))
    fields.finish()
    return SparseBlocksTile(
        tile_n=tile_n,
        stages=stages,
        step_k=STAGE_BYTES_K // size,
        slice_m=slice_m,
        slices=-(-bm // TILE_M),
        rows=rows,
        shared_memory=memory(stages) + STRIPS + 1024,
        reorder=reorder,
        together=together,
        band=band,
    )
