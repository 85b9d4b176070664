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


#: float32, tiles of 64 columns: rows, rows of a lane, warps by rows and resident thread blocks.
_F32_NARROW = ((16, 4, 1, 12), (32, 8, 1, 12), (64, 8, 2, 6))
#: Of 256: rows, rows of a lane, and warps by rows and by columns and resident thread blocks, for
#: operands in pieces and in single elements, whose addresses need registers.
_F32_WIDE = (
    (16, 8, (1, 2, 6), (1, 2, 4)),
    (24, 12, (1, 2, 4), (1, 2, 2)),
    (32, 8, (1, 2, 4), (1, 4, 2)),
    (48, 12, (1, 4, 2), (1, 4, 1)),
    (64, 8, (2, 2, 2), (2, 2, 2)),
)
#: Terms of a short slice, by rows of a wide tile: they start sooner, and leave more to L1.
_F32_SHORT = {16: 8, 24: 12, 32: 8, 48: 16, 64: 16}


def _tile_f32(rows: int, bk: int, narrow: bool, pieces: bool) -> FloatTile:
    tile_k = _tile_k(bk, 4, 32)
    if narrow:
        tile_m, thread_m, warps_m, resident = next(t for t in _F32_NARROW if t[0] >= rows)
        if not pieces:
            resident = resident * 2 // 3
        return FloatTile(4, tile_m, _NARROW, tile_k, warps_m, 1, resident, thread_m, 2)
    if rows <= _FEW_ROWS:
        return FloatTile(4, rows, 128, tile_k, 1, 1, 12, rows, 2)
    tile_m, thread_m, by_pieces, by_elements = next(t for t in _F32_WIDE if t[0] >= rows)
    if not pieces:
        tile_n = 256 if tile_m < 64 else 128
        return FloatTile(4, tile_m, tile_n, tile_k, *by_elements, thread_m, 2)
    short = _F32_SHORT[tile_m]
    tile_k, stages = (tile_k, 2) if bk % short else (short, 3)
    return FloatTile(4, tile_m, 256, tile_k, *by_pieces, thread_m, stages)


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
