"""BSR @ few columns on Hopper (``bsr_addmm_skinny_sm90.cu``): 16-bit blocks of multiples of 64.

Each cluster of thread blocks takes a few row tiles; ``bsr_cluster_work.cu`` divides the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...._math import ceil_div
from .._grid import aligned, size_of
from ..runtime.architectures import HOPPER
from ..runtime.launch import Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_view, vector_view
from ._cluster_work import SIDE, cluster_work
from ._facts import HALVES, INDICES, Facts, always
from ._fields import Fields
from ._product import Product

NAME = "skinny_wgmma"
SOURCES = ("bsr_addmm_skinny_sm90",)
DTYPES, ARCHS = HALVES, HOPPER
TENSOR_CORES = True
BY_ADDRESS = {**INDICES, "BATCHED": (0, 1), "COLUMN_TILES": (0, 1)}

#: Columns that the kernel takes at most, and those with which it beats `bsr_addmm_skinny`.
MOST_COLUMNS = 128
GOOD_COLUMNS = range(17, MOST_COLUMNS + 1)
_THREADS = 128
_BOX = SIDE * SIDE * 2  # bytes
_SHARED = 227 * 1024  # of a multiprocessor; each thread block needs 1 KB besides

facts, worth_measuring = Product.facts, always


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


def pays(f: Facts) -> bool:
    """Return whether it is faster than `bsr_addmm_skinny`."""
    return f.columns in GOOD_COLUMNS


def serves(p: Product) -> bool:
    """Return whether operands can be copied in 16-byte vectors and counted in 32 bits."""
    return (
        not (p.empty or p.transposed) and size_of(p.out.shape[:-1]) < 2**31 and aligned(p.data, 16)
    )


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
    bm, bk = f.blocksize
    by_lines = f.layout in {"rows", "columns"}
    if f.columns > MOST_COLUMNS or bm % SIDE or bk % SIDE or f.transposed or not by_lines:
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
        "BM": bm,
        "BK": bk,
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
    batches, (m, n) = size_of(p.batch), p.out.shape[-2:]
    thread_blocks = ceil_div(m // SIDE, tile.rows_per_cluster) * tile.cluster
    column_tiles = ceil_div(n, tile.tile_n)
    work = cluster_work(p.pattern, tile.cluster, tile.rows_per_cluster)
    product = Launch(
        kernel(
            SOURCES[0],
            ARCHS,
            INDEX=ctype(p.pattern._indices.dtype),
            BATCHED=int(batches > 1),
            COLUMN_TILES=int(column_tiles > 1),
            **p.defines,
            **tile.defines,
        ),
        (batches * column_tiles * thread_blocks,),
        (_THREADS,),
        (
            matrix_view(p.out, p.batch),
            vector_view(work, p.batch),
            vector_view(p.pattern._indices, p.batch),
            matrix_view(p.data[..., 0, :, :], p.batch),
            matrix_view(p.dense, p.batch),
            batch_dims(p.batch),
            kernel_struct(SOURCES[0], "SkinnyProblem")(
                thread_blocks=thread_blocks, n=n, column_tiles=column_tiles, padding=0
            ),
            p.epilogue,
        ),
        tile.shared_memory,
    )
    return (product,)
