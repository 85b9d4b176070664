"""The tile of ``bsr_addmm_skinny.cu``: pure Python, testable without a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from .fields import Fields

#: More columns than this keep the tensor cores busy: wgmma, or `bsr_addmm_sm80`.
MOST_COLUMNS = 128
_STEP = 32  # terms of a warp's step


@dataclass(frozen=True, slots=True)
class SkinnyTile:
    """What a thread block owns, and how deep its warps' rings are."""

    tile_m: int
    tile_n: int
    stages: int
    warps_k: int = 8
    warps_n: int = 1

    @property
    def warps(self) -> int:
        """Warps of a thread block."""
        return self.warps_k * self.warps_n

    def defines(self, blocksize: tuple[int, int], dense: str) -> dict[str, Any]:
        """Return the ``-D`` names of the kernel."""
        return {
            "BM": blocksize[0],
            "BK": blocksize[1],
            "TILE_M": self.tile_m,
            "TILE_N": self.tile_n,
            "WARPS_K": self.warps_k,
            "WARPS_N": self.warps_n,
            "STAGES": self.stages,
            "DENSE": dense,
        }

    def shared_memory(self, dense: str) -> int:
        """Return the dynamic shared memory of a thread block, in bytes."""
        warp_n = self.tile_n // self.warps_n
        right = _STEP * (2 * warp_n + 16) if dense == "rows" else warp_n * 2 * _STEP
        ring = self.stages * (self.tile_m * 2 * _STEP + right)
        return self.warps * max(ring, self.tile_m * (warp_n + 8) * 4)


@lru_cache(maxsize=256)
def skinny_tile(
    blocksize: tuple[int, int],
    rows: int,
    columns: int,
    dense: str,
    processors: int,
    shared_memory: int,
) -> SkinnyTile:
    """Return the tile: as tall as leaves every multiprocessor one, for `dense` is read anew.

    Parameters
    ----------
    blocksize : (bm, bk)
    rows : int
        Of the output, over all batches.
    columns : int
        N.
    dense : {"rows", "columns"}
    processors, shared_memory : int
        Multiprocessors of the device, and the bytes that a thread block may have.

    Examples
    --------
    >>> skinny_tile((64, 64), 4096, 64, "rows", 132, 232448)
    SkinnyTile(tile_m=32, tile_n=64, stages=3, warps_k=8, warps_n=2)
    """
    tile_n = next((n for n in (16, 32, 64) if n >= columns), 128)
    tallest = 64 if tile_n <= 64 else 32
    tile_m = 16
    while tile_m < min(blocksize[0], tallest) and rows // (2 * tile_m) * 10 >= processors * 9:
        tile_m *= 2
    # A warp has at most 32 columns: more warps share the products and the sums then.
    warps_n = max(tile_n // 32, 1)
    for warps_k, stages in ((16 // warps_n, 3), (16 // warps_n, 2), (4, 2), (2, 2)):
        tile = SkinnyTile(tile_m, tile_n, stages, min(warps_k, 8), warps_n)
        if tile.shared_memory(dense) <= shared_memory:
            break
    return tile


def chosen_skinny_tile(
    tile: SkinnyTile, dense: str, shared_memory: int, fields: Fields
) -> SkinnyTile:
    """Return a tile with what a configuration says instead.

    Parameters
    ----------
    tile : SkinnyTile
        From `skinny_tile`.
    dense : {"rows", "columns"}
    shared_memory : int
        Bytes that a thread block may have.
    fields : Fields
        ``tile_m``, ``tile_n``, ``warps_k`` and ``stages``.

    Examples
    --------
    >>> tile = skinny_tile((64, 64), 4096, 64, "rows", 132, 232448)
    >>> chosen_skinny_tile(tile, "rows", 232448, Fields({"tile_m": 16, "stages": 2})).tile_m
    16
    """
    tile_m = fields.pick("tile_m", tile.tile_m, (16, 32, 64))
    # Sums of 64 x 32 outputs are 64 registers of a lane; more columns have more warps.
    tile_n = fields.pick("tile_n", tile.tile_n, (16, 32, 64, 128))
    warps_n = max(tile_n // 32, 1)

    def with_(warps_k: int, stages: int) -> SkinnyTile:
        return replace(
            tile, tile_m=tile_m, tile_n=tile_n, stages=stages, warps_k=warps_k, warps_n=warps_n
        )

    def fits(warps_k: int, stages: int) -> bool:
        return with_(warps_k, stages).shared_memory(dense) <= shared_memory

    warps = [w for w in (1, 2, 4, 8) if w * warps_n <= 16 and fits(w, 2)]
    warps_k = fields.pick("warps_k", tile.warps_k, warps)
    stages = fields.pick("stages", tile.stages, [s for s in (2, 3, 4) if fits(warps_k, s)])
    fields.finish()
    return with_(warps_k, stages)
