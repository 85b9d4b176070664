"""The tile of the row-group product ``bsr_addmm_groups.cu``: pure Python, needing no GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

_TILE_M = 64
_SMALL_M = 32  # of blocks of up to 8 x 8, which are many
_TALL = 64  # rows; taller blocks have the tile to themselves
_NARROW = 128  # columns
_STAGE_K, _STAGES = 32, 4
_ROOMY = 110 * 1024  # shared memory for three stages of twice as many terms
_MOST_SLOTS = 64  # blocks of a stage, of which one word tells whether they are there
_STRIP_ROWS = 32
#: Dynamic shared memory that every GPU from compute capability 8.0 on offers a thread block.
_SHARED_MEMORY = 99 * 1024


@dataclass(frozen=True, slots=True)
class GroupTile:
    """What the kernel is compiled and launched with; the names are those of the source.

    Attributes
    ----------
    group : int
        Block rows that share a tile.
    slice_m, parts : int
        Rows of a block that a tile holds, and tiles that a block's rows need.
    step_k, steps, stages : int
        Rows of ``dense`` of a step, steps of a stage, stages that are under way.
    tile_n, warps_m, warps_n, resident : int
    together : int
        Panels of ``tile_n`` columns that thread blocks take side by side.
    by_row : bool
        How ``dense`` lies.
    """

    group: int
    slice_m: int
    parts: int
    step_k: int
    steps: int
    stages: int
    tile_n: int
    warps_m: int
    warps_n: int
    resident: int
    together: int
    by_row: bool

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps_m * self.warps_n

    @property
    def stage_bytes(self) -> int:
        """Shared memory of a stage."""
        left = self.steps * self.group * self.slice_m * _pitch(self.step_k)
        depth = self.steps * self.step_k
        return left + (depth * _pitch(self.tile_n) if self.by_row else self.tile_n * _pitch(depth))

    @property
    def shared_memory(self) -> int:
        """Dynamic shared memory of a thread block, in bytes."""
        return self.stages * self.stage_bytes

    @property
    def strip_bytes(self) -> int:
        """What the outputs need of it on their way out."""
        rows = min(_STRIP_ROWS, self.group * self.slice_m // self.warps_m)
        return self.warps_m * rows * (self.tile_n + 4 * self.warps_n) * 4

    @property
    def defines(self) -> dict[str, int | str]:
        """The ``-D`` names of the kernel."""
        names = ("group", "slice_m", "step_k", "steps", "stages", "tile_n", "warps_m", "warps_n")
        defines = {name.upper(): getattr(self, name) for name in (*names, "resident")}
        return {**defines, "DENSE": "rows" if self.by_row else "columns"}


def _pitch(elements: int) -> int:
    """Return the bytes from a line of so many 16-bit elements to the next: 16 times an odd."""
    return (elements // 8 | 1) * 16


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def group_tile(
    blocksize: tuple[int, int],
    columns: int,
    by_row: bool,
    shared_memory: int = _SHARED_MEMORY,
    **fields: int,
) -> GroupTile:
    """Return the tile for blocks of bm x bk times N columns, measured best on an H200.

    Parameters
    ----------
    blocksize : (bm, bk)
    columns : int
        N.
    by_row : bool
        How ``dense`` lies.
    shared_memory : int
        What a thread block may have.
    **fields : int
        ``tile_m``, ``stage_k``, and fields of the tile: instead of what is chosen here.

    Examples
    --------
    >>> tile = group_tile((16, 16), 4096, True)
    >>> tile.group, tile.tile_n, tile.steps
    (4, 256, 2)
    >>> group_tile((23, 23), 4096, True).slice_m
    24
    """
    bm, bk = blocksize
    tall = bm > _TALL and columns > _NARROW
    tile_m, stage_k = _TILE_M, _STAGE_K
    if bm <= 8 and bk <= 8:
        tile_m = _SMALL_M
    elif tall:
        tile_m = 2 * _TILE_M
    tile_n = 128 if columns <= _NARROW or tall or bm <= 8 else 256
    chosen = {
        "tile_n": tile_n,
        "warps_m": 2 if tall else 1,
        "warps_n": 2 if tall else 4,
        "stages": _STAGES,
        "resident": 2 if tile_m * tile_n >= 128 * 128 else 4,
        "together": 2,
    }
    chosen |= {name: value for name, value in fields.items() if name in chosen}
    if tall and shared_memory >= _ROOMY:
        stage_k, chosen["stages"] = 64, fields.get("stages", 3)
    tile_m, stage_k = fields.get("tile_m", tile_m), fields.get("stage_k", stage_k)

    parts = _ceil(bm, tile_m)
    slice_m = _ceil(_ceil(bm, parts), 8 * chosen["warps_m"]) * 8 * chosen["warps_m"]
    group = max(1, tile_m // slice_m)
    step_k = _ceil(_ceil(bk, _ceil(bk, stage_k)), 8) * 8
    steps = 1 if step_k < bk else max(1, min(stage_k // step_k, _MOST_SLOTS // group))
    tile = GroupTile(
        group=group,
        slice_m=slice_m,
        parts=parts,
        step_k=step_k,
        steps=steps,
        by_row=by_row,
        **chosen,
    )
    stages = min(tile.stages, shared_memory // tile.stage_bytes)
    return replace(tile, stages=max(stages, _ceil(tile.strip_bytes, tile.stage_bytes)))
