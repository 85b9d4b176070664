"""The tile of a SIMT product (``common/simt_tile.cuh``): pure Python, testable without a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ...._math import ceil_div
from ._fields import Fields


@dataclass(frozen=True, slots=True)
class SimtTile:
    """The tile of a SIMT product (``common/simt_tile.cuh``).

    ``tile_m`` x ``tile_n`` outputs, ``tile_k`` terms at a time; ``lanes`` threads share an output.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    lanes: int

    @property
    def threads(self) -> int:
        """Threads of a block, a multiple of 32."""
        return ceil_div(self.tile_m, 4) * ceil_div(self.tile_n, 4) * self.lanes

    @property
    def defines(self) -> dict[str, int]:
        """The ``-D`` names of the kernel."""
        return {
            "TILE_M": self.tile_m,
            "TILE_N": self.tile_n,
            "TILE_K": self.tile_k,
            "LANES": self.lanes,
        }


_SIMT_ROWS = (4, 16, 64)
_SIMT_COLUMNS = (1, 16, 64)
_FEWEST_THREADS = 64


def simt_tile(rows: int, columns: int, fields: Fields | None = None) -> SimtTile:
    """Return the tile for a matrix of outputs that consists of ``rows`` x ``columns`` parts.

    The tile is the smallest that holds a part, up to 64 x 64. Where that leaves few threads,
    several share each output, and a slice has more terms. ``fields`` may say ``tile_m`` and
    ``tile_n``.

    Examples
    --------
    >>> simt_tile(32, 4096)
    SimtTile(tile_m=64, tile_n=64, tile_k=16, lanes=1)
    >>> simt_tile(1, 1)
    SimtTile(tile_m=4, tile_n=1, tile_k=64, lanes=32)
    """
    tile_m = next((t for t in _SIMT_ROWS if t >= rows), _SIMT_ROWS[-1])
    tile_n = next((t for t in _SIMT_COLUMNS if t >= columns), _SIMT_COLUMNS[-1])
    fields = fields or Fields()
    tile_m = fields.pick("tile_m", tile_m, _SIMT_ROWS)
    tile_n = fields.pick("tile_n", tile_n, _SIMT_COLUMNS)
    outputs = (tile_m // 4) * max(tile_n // 4, 1)
    lanes = min(max(_FEWEST_THREADS // outputs, 1), 32)
    tile_k = 16 if lanes == 1 else max(32, 2 * lanes)
    return SimtTile(tile_m, tile_n, tile_k, lanes)
