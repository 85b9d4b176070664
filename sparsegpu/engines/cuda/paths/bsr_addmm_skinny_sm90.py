"""BSR @ few columns on Hopper (``bsr_addmm_skinny_sm90.cu``): 16-bit blocks of multiples of 64.

Each cluster of thread blocks takes a few row tiles; ``bsr_cluster_work.cu`` divides the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ...._math import ceil_div
from ..runtime.architectures import HOPPER, SHARED_MEMORY
from ..runtime.launch import Launch
from ..runtime.types import ctype
from . import _skinny
from ._cluster_work import SIDE, cluster_work
from ._facts import HALVES, Facts, always
from ._fields import Fields
from ._product import Product
from ._skinny import MOST_COLUMNS, clusters_pay, skinny_launch, suits_clusters

NAME = "skinny_wgmma"
SOURCES = ("bsr_addmm_skinny_sm90",)
DTYPES, ARCHS = HALVES, HOPPER
TENSOR_CORES = True
BY_ADDRESS = _skinny.BY_ADDRESS

_THREADS = 128
_BOX = SIDE * SIDE * 2  # bytes
_SHARED = SHARED_MEMORY[9, 0]  # of a multiprocessor; each thread block needs 1 KB besides

facts, serves = Product.facts, _skinny.serves
pays, worth_measuring = clusters_pay, always


@dataclass(frozen=True, slots=True)
class Tile:
    """Clusters of thread blocks, each of which takes a few row tiles.

    Attributes
    ----------
    tile_n : int
        Columns of a thread block.
    cluster : int
        Thread blocks of a cluster: 1, 2, 4 or 8.
    rows_per_cluster : int
        Row tiles of a cluster, which share its thread blocks by their lengths.
    shared_memory : int
    defines : dict
        The ``-D`` names of the kernel.
    """

    tile_n: int
    cluster: int
    rows_per_cluster: int
    shared_memory: int
    defines: dict[str, Any]


def tile(f: Facts, fields: Fields) -> Tile | None:
    """Return the clusters: as many thread blocks as multiprocessors, or twice as many.

    A long and a short row tile in one cluster even out what a multiprocessor reads. But
    exchanging wide partial sums is expensive: then each half of the columns has clusters of its
    own, of two thread blocks for a row tile, two of which fit a multiprocessor.

    ``fields`` may say ``tile_n``, ``cluster``, ``rows_per_cluster`` and ``stages``.

    Examples
    --------
    >>> import numpy as np
    >>> f16 = np.dtype("float16")
    >>> narrow, wide = (
    ...     tile(Facts(dtype=f16, shape=(4096, 4096, n), blocksize=(64, 64)), Fields())
    ...     for n in (64, 128)
    ... )
    >>> narrow.tile_n, narrow.cluster, narrow.rows_per_cluster, narrow.defines["STAGES"]
    (64, 4, 2, 4)
    >>> wide.tile_n, wide.cluster, wide.rows_per_cluster, wide.defines["STAGES"]
    (64, 2, 1, 5)
    """
    if not suits_clusters(f):
        return None
    tile_n, cluster, row_tiles, stages = _clusters(f.shape[0] // SIDE, f.columns, f.multiprocessors)
    tile_n = fields.pick("tile_n", tile_n, (16, 32, 64, MOST_COLUMNS))
    cluster = fields.pick("cluster", cluster, (1, 2, 4, 8))
    few = [t for t in (1, 2, 4) if t <= cluster]
    row_tiles = fields.pick("rows_per_cluster", min(row_tiles, cluster), few)
    stage = _BOX * (1 + ceil_div(tile_n, SIDE))
    inbox = _inbox(tile_n, cluster)
    most = (_SHARED - 1024 - inbox) // stage
    stages = fields.pick("stages", min(stages, most), range(2, most + 1))
    names = {
        "T": ctype(f.dtype),
        "BM": f.blocksize[0],
        "BK": f.blocksize[1],
        "DENSE": f.layout,
        "TILE_N": tile_n,
        "CLUSTER": cluster,
        "STAGES": stages,
    }
    return Tile(tile_n, cluster, row_tiles, stages * stage + inbox, names)


def _clusters(row_tiles: int, columns: int, processors: int) -> tuple[int, int, int, int]:
    """Return columns, thread blocks and row tiles of a cluster, and stages."""
    tile_n = next(n for n in (16, 32, SIDE, MOST_COLUMNS) if n >= columns)
    if row_tiles > processors:
        return tile_n, 1, 1, 4
    halves = tile_n > SIDE
    if 4 * row_tiles <= processors:
        cluster, rows_per_cluster = 4, 1
    else:
        cluster, rows_per_cluster = (2, 1) if halves else (4, 2)
    if halves:
        return SIDE, cluster, rows_per_cluster, 5
    alone = row_tiles * cluster <= processors * rows_per_cluster
    return tile_n, cluster, rows_per_cluster, 6 if alone and tile_n < SIDE else 4


def _inbox(tile_n: int, cluster: int) -> int:
    """Return the bytes for the sums of other thread blocks, and the barrier that counts them."""
    fragment, barrier = 512, 16
    return (tile_n // 2 + cluster) * fragment + barrier if cluster > 1 else 0


def launches(p: Product, tile: Tile) -> tuple[Launch, ...]:
    """Return the launch that computes a product."""
    m, n = p.out.shape[-2:]
    thread_blocks = ceil_div(m // SIDE, tile.rows_per_cluster) * tile.cluster
    column_tiles = ceil_div(n, tile.tile_n)
    product = skinny_launch(
        p,
        tile,
        SOURCES[0],
        ARCHS,
        (prod(p.batch) * thread_blocks, column_tiles),
        _THREADS,
        cluster_work(p.pattern, tile.cluster, tile.rows_per_cluster),
        thread_blocks=thread_blocks,
        column_tiles=column_tiles,
    )
    return (product,)
