"""How ``bsr_addmm_skinny_sm90.cu`` shares rows out: pure Python, testable without a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from .fields import Fields

#: Rows of a row tile and terms of a step.
SIDE = 64
#: Columns that a product has at most, and with which it is faster than `bsr_addmm_skinny.cu`.
MOST_COLUMNS = 128
GOOD_COLUMNS = range(17, MOST_COLUMNS + 1)
THREADS = 128

_BOX = SIDE * SIDE * 2  # bytes
_SHARED = 227 * 1024  # of a multiprocessor, of which each thread block takes 1 KB more


@dataclass(frozen=True, slots=True)
class SkinnyClusters:
    """Clusters of thread blocks, each of which takes a few row tiles.

    Attributes
    ----------
    tile_n : int
        Columns of a thread block.
    cluster : int
        Thread blocks of a cluster: 1, 2, 4 or 8.
    together : int
        Row tiles of a cluster, which share its thread blocks by their lengths.
    stages : int
        Steps that a thread block has under way.
    """

    tile_n: int
    cluster: int
    together: int
    stages: int

    @property
    def defines(self) -> dict[str, Any]:
        """The ``-D`` names of the kernel."""
        return {"TILE_N": self.tile_n, "CLUSTER": self.cluster, "STAGES": self.stages}

    @property
    def shared_memory(self) -> int:
        """Dynamic shared memory of a thread block, in bytes."""
        return self.stages * _stage(self.tile_n) + _inbox(self.tile_n, self.cluster)

    @property
    def resident(self) -> int:
        """Thread blocks that a multiprocessor has room for."""
        return _SHARED // (self.shared_memory + 1024)


def _stage(tile_n: int) -> int:
    return _BOX * (1 + -(-tile_n // SIDE))


def _inbox(tile_n: int, cluster: int) -> int:
    """Return the bytes for the sums of other thread blocks, and the barrier that counts them."""
    fragment, barrier = 512, 16
    return (tile_n // 2 + cluster) * fragment + barrier if cluster > 1 else 0


@lru_cache(maxsize=256)
def skinny_clusters(row_tiles: int, columns: int, processors: int) -> SkinnyClusters:
    """Return the clusters: as many thread blocks as multiprocessors, or twice as many.

    Two row tiles together, a long one and a short one, even out what a multiprocessor reads. But
    wide sums are dear to pass on: then each half of the columns has thread blocks of its own, two
    for a row tile, of which a multiprocessor has room for two.

    Parameters
    ----------
    row_tiles : int
        Tiles of 64 rows.
    columns : int
        N.
    processors : int
        Multiprocessors of the device.

    Examples
    --------
    >>> skinny_clusters(64, 64, 132)
    SkinnyClusters(tile_n=64, cluster=4, together=2, stages=4)
    >>> skinny_clusters(64, 128, 132)
    SkinnyClusters(tile_n=64, cluster=2, together=1, stages=5)
    """
    tile_n = next(n for n in (16, 32, SIDE, MOST_COLUMNS) if n >= columns)
    if row_tiles > processors:
        return SkinnyClusters(tile_n, cluster=1, together=1, stages=4)
    halves = tile_n > SIDE
    if 4 * row_tiles <= processors:
        cluster, together = 4, 1
    else:
        cluster, together = (2, 1) if halves else (4, 2)
    if halves:
        return SkinnyClusters(SIDE, cluster, together, stages=5)
    alone = row_tiles * cluster <= processors * together
    return SkinnyClusters(tile_n, cluster, together, stages=6 if alone and tile_n < SIDE else 4)


def chosen_skinny_clusters(tile: SkinnyClusters, fields: Fields) -> SkinnyClusters:
    """Return clusters with what a configuration says instead.

    Parameters
    ----------
    tile : SkinnyClusters
        From `skinny_clusters`.
    fields : Fields
        ``tile_n``, ``cluster``, ``together`` and ``stages``.

    Examples
    --------
    >>> chosen_skinny_clusters(skinny_clusters(64, 64, 132), Fields({"cluster": 2}))
    SkinnyClusters(tile_n=64, cluster=2, together=2, stages=4)
    """
    tile_n = fields.pick("tile_n", tile.tile_n, (16, 32, 64, MOST_COLUMNS))
    cluster = fields.pick("cluster", tile.cluster, (1, 2, 4, 8))
    together = min(tile.together, cluster)
    together = fields.pick("together", together, [t for t in (1, 2, 4) if t <= cluster])
    most = _most_stages(tile_n, cluster)
    stages = fields.pick("stages", min(tile.stages, most), range(2, most + 1))
    fields.finish()
    return replace(tile, tile_n=tile_n, cluster=cluster, together=together, stages=stages)


def _most_stages(tile_n: int, cluster: int) -> int:
    return (_SHARED - 1024 - _inbox(tile_n, cluster)) // _stage(tile_n)
