"""The tile of the row-group product ``bsr_addmm_groups.cu``: pure Python, needing no GPU."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import Fields

#: Fewer columns leave most of a tile empty: not for this kernel.
FEWEST_COLUMNS = 72
#: Elements that are copied at a time: rows of ``out`` and of what is copied are made of them.
PIECE = 8
_SMALL = 8  # rows, and columns, of blocks that are many
_TALL = 64  # rows; taller blocks have two warps to a column
_LOW, _ALONE = 16, 32  # rows; those between have a tile to themselves, of two warps
_NARROW = 128  # columns
_WARP = 64 * 64  # outputs, of which a lane keeps 128 in registers
_WARPS = 8  # of a multiprocessor with so many registers each
_FEWEST_WARPS = 4
_MOST_RESIDENT = 4
_STEADY = 32  # terms: slices of so many are multiplied without a break
_TOGETHER = 512  # columns that thread blocks take side by side
_MOST_STAGES = 6
_MOST_SLOTS = 64  # blocks of a stage, of which one word tells whether they are there
_STRIP_ROWS = 32
#: Dynamic shared memory that every GPU from compute capability 8.0 on offers a thread block.
_SHARED_MEMORY = 99 * 1024
_RESERVED = 1024  # of the multiprocessor's for each of its thread blocks


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
        names = ("group", "step_k", "steps", "stages", "tile_n", "warps_m", "warps_n", "resident")
        defines = {name.upper(): getattr(self, name) for name in names}
        dense = "rows" if self.by_row else "columns"
        return {**defines, "SLICE_ROWS": self.slice_m, "DENSE": dense}


def _pitch(elements: int) -> int:
    """Return the bytes from a line to the next: a power of two, or an odd number of pieces."""
    pieces = elements // PIECE
    return (pieces if pieces & (pieces - 1) == 0 else pieces | 1) * 16


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def group_tile(
    blocksize: tuple[int, int],
    columns: int,
    by_row: bool,
    shared_memory: int = _SHARED_MEMORY,
    fields: Fields | None = None,
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
    fields : Fields, optional
        ``tile_m`` (rows, of which a group fills as many as it can), ``tile_n``, ``stage_k`` (terms
        of a stage), ``stages`` and ``together``, where they are not to be chosen here.

    Examples
    --------
    >>> tile = group_tile((16, 16), 4096, True)
    >>> tile.group, tile.tile_n, tile.steps
    (4, 256, 2)
    >>> group_tile((23, 23), 4096, True).slice_m
    24
    >>> group_tile((16, 16), 4096, True, fields=Fields({"tile_m": 32})).group
    2
    """
    bm, bk = blocksize
    fields = fields or Fields()
    narrow, small = columns <= _NARROW, bm <= _SMALL and bk <= _SMALL
    tall = bm > _TALL and not narrow
    alone = _LOW < bm <= _ALONE and bk % _STEADY == 0 and not narrow
    tile_m = fields.pick("tile_m", 128 if tall else 32 if small or alone else 64, (32, 64, 128))
    tile_n = fields.pick("tile_n", 128 if narrow or bm <= _SMALL else 256, (128, 256))
    alone = alone and tile_m == 32
    warps = max(tile_m * tile_n // _WARP, 2 if alone else _FEWEST_WARPS)
    resident = min(_WARPS * _WARP // (tile_m * tile_n), _MOST_RESIDENT)
    room = (shared_memory + _RESERVED) // resident - _RESERVED

    parts = _ceil(bm, tile_m)
    warps_m = 2 if _ceil(bm, parts) > _TALL else 1
    slice_m = _ceil(_ceil(bm, parts), 8 * warps_m) * 8 * warps_m
    group = max(1, tile_m // slice_m)

    def with_(stage_k: int, stages: int, together: int) -> GroupTile:
        step_k = _ceil(_ceil(bk, _ceil(bk, stage_k)), 8) * 8
        steps = 1 if step_k < bk else max(1, min(stage_k // step_k, _MOST_SLOTS // group))
        return GroupTile(
            group=group,
            slice_m=slice_m,
            parts=parts,
            step_k=step_k,
            steps=steps,
            stages=stages,
            tile_n=tile_n,
            warps_m=warps_m,
            warps_n=warps // warps_m,
            resident=resident,
            together=together,
            by_row=by_row,
        )

    short = alone or 2 * with_(64, 1, 1).stage_bytes > room
    stage_k = fields.pick("stage_k", 32 if short else 64, (32, 64))
    one = with_(stage_k, 1, 1)
    most = min(shared_memory // one.stage_bytes, _MOST_STAGES)
    fewest = max(2, _ceil(one.strip_bytes, one.stage_bytes))
    fitting = max(2, min(room // one.stage_bytes, _MOST_STAGES))
    stages = fields.pick("stages", fitting, range(fewest, most + 1))
    together = fields.pick("together", _TOGETHER // tile_n, (1, 2, 4, 8))
    fields.finish()
    return with_(stage_k, stages, together)
