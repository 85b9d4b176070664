"""Tiles of the BSR products at full precision (``bsr_addmm_f32.cu``, ``bsr_addmm_f64.cu``)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .fields import Fields

#: Dynamic shared memory that every GPU from compute capability 8.0 on offers a thread block.
SHARED_MEMORY = 99 * 1024
_MOST_ROWS = 64
_NARROW = 64  # columns
_FEW_ROWS = 8  # that every lane has all of
_REGISTERS = 65536  # of a multiprocessor
_OTHER_REGISTERS = 40  # of a thread, besides its sums


@dataclass(frozen=True, slots=True)
class FloatTile:
    """What a thread block computes, and with what.

    ``tile_m`` x ``tile_n`` outputs, ``tile_k`` terms at a time, ``stages`` times in shared memory,
    by ``warps_m`` x ``warps_n`` warps; a multiprocessor is to hold ``resident`` thread blocks.
    ``thread_m`` rows belong to a lane (float32).
    """

    itemsize: int
    tile_m: int
    tile_n: int
    tile_k: int
    warps_m: int
    warps_n: int
    resident: int
    thread_m: int
    most_stages: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps_m * self.warps_n

    @property
    def stages(self) -> int:
        """Slices that are in shared memory at once."""
        return min(self.most_stages, SHARED_MEMORY // self._stage)

    @property
    def _stage(self) -> int:
        if self.itemsize == 4:
            right = (self.tile_n + 4) * 4
            if self.tile_m // self.warps_m > self.thread_m:
                return self.tile_k * ((self.tile_m + 4) * 4 + right)
            left = (self.tile_k // 4 | 1) * 16
        else:
            left, right = (
                (self.tile_k + (8 if self.tile_k % 16 == 0 else 0)) * 8,
                (self.tile_n + 2) * 8,
            )
        return self.tile_m * left + self.tile_k * right

    @property
    def _strips(self) -> int:
        rows = 8
        if self.itemsize == 4:
            lanes_m = self.tile_m // self.warps_m // self.thread_m
            rows = 4 * lanes_m if lanes_m > 1 else self.thread_m
        return self.warps_m * rows * (self.tile_n * self.itemsize + 16 * self.warps_n)

    @property
    def shared_memory(self) -> int:
        """Dynamic shared memory of a thread block, in bytes."""
        return max(self.stages * self._stage, self._strips)

    @property
    def defines(self) -> dict[str, int]:
        """The ``-D`` names of the kernel."""
        names = ("tile_m", "tile_n", "tile_k", "warps_m", "warps_n", "stages", "resident")
        defines = {name.upper(): getattr(self, name) for name in names}
        return {**defines, "THREAD_M": self.thread_m} if self.itemsize == 4 else defines


def float_tile(
    itemsize: int,
    bm: int,
    bk: int,
    columns: int,
    *,
    pieces: bool = True,
    fields: Fields | None = None,
) -> FloatTile:
    """Return the tile for float32 (``itemsize`` 4) or float64 blocks of bm x bk, measured best.

    Blocks of more than 64 rows are shared evenly by several tiles. Operands that are not copied in
    ``pieces`` of 16 bytes leave fewer registers for outputs. ``fields`` may say ``tile_n``,
    ``stages`` and ``resident``.

    Examples
    --------
    >>> tile = float_tile(4, 128, 128, 4096)
    >>> tile.tile_m, tile.tile_n, tile.tile_k, tile.stages, tile.threads
    (64, 256, 16, 3, 128)
    >>> float_tile(8, 23, 23, 4096).tile_m
    24
    """
    parts = -(-bm // _MOST_ROWS)
    rows = -(-bm // parts)
    choose = _tile_f32 if itemsize == 4 else _tile_f64
    fields = fields or Fields()
    tile = choose(rows, bk, columns <= _NARROW, pieces)
    widths = sorted({choose(rows, bk, narrow, pieces).tile_n for narrow in (True, False)})
    tile_n = fields.pick("tile_n", tile.tile_n, widths)
    if tile_n != tile.tile_n:
        tile = choose(rows, bk, tile_n == _NARROW, pieces)
    fitting = [s for s in (2, 3, 4) if s <= SHARED_MEMORY // tile._stage]
    stages = fields.pick("stages", tile.stages, fitting)
    sums = tile.tile_m * tile.tile_n // tile.threads * itemsize // 4
    most = _REGISTERS // (tile.threads * (sums + _OTHER_REGISTERS))
    resident = fields.pick("resident", tile.resident, range(1, max(most, tile.resident) + 1))
    fields.finish()
    return replace(tile, most_stages=stages, resident=resident)


def _tile_f32(rows: int, bk: int, narrow: bool, pieces: bool) -> FloatTile:
    if rows <= _FEW_ROWS and not narrow:
        return FloatTile(4, rows, 128, _tile_k(bk, 4, 32), 1, 1, 12, rows, 2)
    if narrow:
        shapes = {16: (64, 1, 1, 12, 4), 32: (64, 1, 1, 12, 8), 64: (64, 2, 1, 6, 8)}
    elif pieces:
        shapes = {
            16: (256, 1, 2, 6, 8),
            24: (256, 1, 2, 4, 12),
            32: (256, 1, 2, 4, 8),
            48: (256, 1, 4, 2, 12),
            64: (256, 2, 2, 2, 8),
        }
    else:  # addresses of single elements need registers
        shapes = {
            16: (256, 1, 2, 4, 8),
            24: (256, 1, 2, 2, 12),
            32: (256, 1, 4, 2, 8),
            48: (256, 1, 4, 1, 12),
            64: (128, 2, 2, 2, 8),
        }
    tile_m = next(m for m in shapes if m >= rows)
    tile_n, warps_m, warps_n, resident, thread_m = shapes[tile_m]
    if narrow and not pieces:
        resident = resident * 2 // 3
    tile_k, stages = _tile_k(bk, 4, 32), 2
    short = {16: 8, 24: 12, 32: 8, 48: 16, 64: 16}[tile_m]
    if pieces and not narrow and bk % short == 0:
        tile_k, stages = short, 3  # short slices start sooner, and leave more to L1
    return FloatTile(4, tile_m, tile_n, tile_k, warps_m, warps_n, resident, thread_m, stages)


def _tile_f64(rows: int, bk: int, narrow: bool, pieces: bool) -> FloatTile:
    tile_m, tile_k = -(-rows // 8) * 8, _tile_k(bk, 8, 24)
    if narrow or not pieces:
        return FloatTile(8, tile_m, 64, tile_k, 1, 2, 4, 0, 2)
    if tile_m <= 32:
        return FloatTile(8, tile_m, 128, tile_k, 1, 2, 4, 0, 2 if tile_m > 16 else 3)
    return FloatTile(8, tile_m, 128, tile_k, 1, 4, 2, 0, 3)


def _tile_k(bk: int, step: int, most: int) -> int:
    """Return how many terms a slice has: as many as may be, in steps, that divide bk evenly.

    Where nothing does, the last slice of a block has fewer.
    """
    fewest = -(-bk // most)
    for slices in range(fewest, 3 * fewest + 1):
        if bk % (slices * step) == 0:
            return bk // slices
    return -(-bk // (fewest * step)) * step
