"""The tile of ``semi_structured_addmm_skinny_sm90.cu``, and how k is split: pure Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .fields import Fields
from .hopper_tile import TILE_M
from .sparse_tile import PAIR_BYTES_K, pair_bytes

#: Columns that a product has at most to be left to this kernel.
FEW_COLUMNS = 128
STAGE_BYTES_K = 256  # bytes of a dense column that a stage holds
PAIRS = STAGE_BYTES_K // PAIR_BYTES_K  # of columns of metadata that a stage holds
THREADS = 288

_SHARED = 228 * 1024  # of a multiprocessor
_RESERVED = 1024 + 1024 + 256  # of each thread block: CUDA's, alignment of the stages, barriers
_MOST_STAGES, _ENOUGH_STAGES = 10, 6
_TILES = (16, 32, 64, 128)
_CLUSTERS = (1, 2, 4, 8)
#: Clusters of four or eight do not find room on all multiprocessors: so much of them is filled.
_FILLED = {1: 1.0, 2: 1.0, 4: 0.9, 8: 0.9}
# Microseconds that a thread block alone takes for a stage, for each of its columns, and for passing
# its sums on (one H200).
_STAGE_US, _COLUMN_US, _END_US = 0.2, 0.0019, 2.0


@dataclass(frozen=True, slots=True)
class SkinnySparseTile:
    """Clusters of thread blocks, each of which takes a row tile and splits its k.

    Attributes
    ----------
    tile_n : int
        Columns of a thread block.
    cluster : int
        Thread blocks that share a row tile's k.
    stages : int
        Stages that a thread block has under way.
    shared_memory : int
    """

    tile_n: int
    cluster: int
    stages: int
    shared_memory: int

    @property
    def defines(self) -> dict[str, Any]:
        """The ``-D`` names of the kernel."""
        return {"TILE_N": self.tile_n, "CLUSTER": self.cluster, "STAGES": self.stages}


def stage_bytes(itemsize: int, tile_n: int) -> int:
    """Return STAGE_BYTES of the source."""
    return (TILE_M // 2 + tile_n) * STAGE_BYTES_K + PAIRS * pair_bytes(itemsize)


def skinny_sparse_tile(
    itemsize: int,
    columns: int,
    row_tiles: int,
    stages_of_k: int,
    processors: int,
    fields: Fields | None = None,
) -> SkinnySparseTile:
    """Return the tile for a product.

    Parameters
    ----------
    itemsize : int
        Of the operands.
    columns : int
        N.
    row_tiles : int
        Tiles of 128 rows, of all matrices of a batch.
    stages_of_k : int
    processors : int
        Multiprocessors of the device.
    fields : Fields, optional
        ``tile_n``, ``cluster`` and ``stages``, where they are not to be chosen here.

    Examples
    --------
    >>> tile = skinny_sparse_tile(2, 16, 64, 64, 132)
    >>> tile.tile_n, tile.cluster, tile.stages
    (16, 2, 6)
    """
    fields = fields or Fields()
    covering = next((n for n in _TILES if n >= columns), _TILES[-1])
    tile_n = fields.pick("tile_n", covering, _TILES)
    tiles = row_tiles * -(-columns // tile_n)
    best = best_cluster(tiles, tile_n, stages_of_k, processors)
    cluster = fields.pick("cluster", best, _CLUSTERS)
    stage = stage_bytes(itemsize, tile_n)
    most = min((_SHARED - _RESERVED) // stage, _MOST_STAGES)
    alone = tiles * cluster <= processors
    good = min(most, _ENOUGH_STAGES) if alone else (_SHARED // 2 - _RESERVED) // stage
    stages = fields.pick("stages", good, range(2, most + 1))
    fields.finish()
    return SkinnySparseTile(tile_n, cluster, stages, stages * stage + 1024)


@lru_cache(maxsize=256)
def best_cluster(tiles: int, tile_n: int, stages_of_k: int, processors: int) -> int:
    """Return how many thread blocks share a tile's k: as many as are soonest done.

    Examples
    --------
    >>> [best_cluster(tiles, 16, 64, 132) for tiles in (8, 64, 1000)]
    [8, 2, 1]
    """

    def microseconds(cluster: int) -> float:
        room = max(int(processors * _FILLED[cluster]) // cluster, 1)
        stages = -(-stages_of_k // cluster)
        return -(-tiles // room) * (stages * (_STAGE_US + _COLUMN_US * tile_n) + _END_US)

    return min(_CLUSTERS, key=microseconds)
