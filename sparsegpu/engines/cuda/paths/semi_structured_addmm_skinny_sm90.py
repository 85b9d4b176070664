"""2:4 @ few columns on Hopper (``semi_structured_addmm_skinny_sm90.cu``).

Clusters of thread blocks split k, so that all multiprocessors read the packed matrix, once.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...._math import ceil_div
from ..runtime.architectures import HOPPER
from ..runtime.launch import Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.tensor_map import tensor_map
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_view
from ._dense_lines import tensor_core_lines
from ._facts import HALVES, Facts
from ._fields import Fields
from ._product_24 import Product24, counts_in_32_bits
from ._sm90 import PAIR_BYTES_K, TILE_M, ClusterTile, covering, pair_bytes
from ._tma import INT32, Batch, codes_map, dense_maps, one_batch

NAME = "wgmma_sp_skinny"
SOURCES = ("semi_structured_addmm_skinny_sm90",)
DTYPES, ARCHS = (*HALVES, "int8", "float32", "float8_e4m3fn"), HOPPER
TENSOR_CORES = True
BY_ADDRESS = {"DENSE": ("rows", "columns"), "STORE": ("rows", "columns")}

_MOST_COLUMNS = 128
_STAGE_BYTES_K = 256  # bytes of a dense column that a stage holds
_PAIRS = _STAGE_BYTES_K // PAIR_BYTES_K  # of columns of metadata that a stage holds
_PACKED_BYTES = _STAGE_BYTES_K // 2  # of a row of a stage
_THREADS = 288
_SWIZZLE = 128  # bytes, the widest
_SHARED = 228 * 1024  # of a multiprocessor
_RESERVED = 1024 + 1024 + 256  # of each thread block: CUDA's, alignment of the stages, barriers
_MOST_STAGES, _ENOUGH_STAGES = 10, 6
_WIDTHS = (16, 32, 64, 128)
_CLUSTERS = (1, 2, 4, 8)
#: The share of the multiprocessors that clusters of a size can occupy.
_FILLED = {1: 1.0, 2: 1.0, 4: 0.9, 8: 0.9}
# Microseconds that a thread block alone takes for a stage, for each of its columns, and for
# exchanging its sums (one H200).
_STAGE_US, _COLUMN_US, _END_US = 0.2, 0.0019, 2.0

facts, serves = Product24.facts, counts_in_32_bits


def pays(f: Facts) -> bool:
    """Return whether columns are few."""
    return f.columns <= _MOST_COLUMNS


def tile(f: Facts, fields: Fields) -> ClusterTile | None:
    """Return the tile; a cluster takes 128 rows, and its thread blocks share their k.

    ``fields`` may say ``tile_n``, ``cluster`` and ``stages``.

    Examples
    --------
    >>> chosen = tile(Facts(dtype=np.dtype("float16"), shape=(8192, 8192, 16)), Fields())
    >>> chosen.tile_n, chosen.cluster, chosen.defines["STAGES"]
    (16, 2, 6)
    """
    if not f.tensor_cores:
        return None
    (m, k, n), size = f.shape, f.itemsize
    tile_n = fields.pick("tile_n", covering(n, _WIDTHS), _WIDTHS)
    tiles = ceil_div(m, TILE_M) * f.matrices * ceil_div(n, tile_n)
    best = best_cluster(tiles, tile_n, ceil_div(k * size, _STAGE_BYTES_K), f.multiprocessors)
    cluster = fields.pick("cluster", best, _CLUSTERS)
    stage = stage_bytes(size, tile_n)
    most = min((_SHARED - _RESERVED) // stage, _MOST_STAGES)
    alone = tiles * cluster <= f.multiprocessors
    good = min(most, _ENOUGH_STAGES) if alone else (_SHARED // 2 - _RESERVED) // stage
    stages = fields.pick("stages", good, range(2, most + 1))
    names = {"T": ctype(f.dtype), "TILE_N": tile_n, "CLUSTER": cluster, "STAGES": stages}
    return ClusterTile(tile_n, cluster, stages * stage + 1024, names)


def stage_bytes(itemsize: int, tile_n: int) -> int:
    """Return STAGE_BYTES of the source."""
    return (TILE_M // 2 + tile_n) * _STAGE_BYTES_K + _PAIRS * pair_bytes(itemsize)


@lru_cache(maxsize=256)
def best_cluster(tiles: int, tile_n: int, stages_of_k: int, processors: int) -> int:
    """Return how many thread blocks share a tile's k: the number with the shortest modelled time.

    Examples
    --------
    >>> [best_cluster(tiles, 16, 64, 132) for tiles in (8, 64, 1000)]
    [8, 2, 1]
    """

    def microseconds(cluster: int) -> float:
        room = max(int(processors * _FILLED[cluster]) // cluster, 1)
        stages = ceil_div(stages_of_k, cluster)
        return ceil_div(tiles, room) * (stages * (_STAGE_US + _COLUMN_US * tile_n) + _END_US)

    return min(_CLUSTERS, key=microseconds)


def launches(p: Product24, tile: ClusterTile) -> tuple[Launch, ...] | None:
    """Return the launches, or None where tensor maps or 32-bit numbers do not serve.

    A ``dense`` whose layout TMA or wgmma cannot read is first copied to aligned lines in
    workspace: it is small.
    """
    (m, n), out, dense, size = p.out.shape[-2:], p.out, p.dense, p.packed.itemsize
    if size == 1:
        dense = dense.view(np.int8)
    dense, layout, copies = tensor_core_lines(dense, size != 2 or dense.strides[-2] == size)
    # `out` may have any strides: only `dense` needs one batch dimension.
    batch = one_batch(p.batch, 1, dense, dense)
    if layout == "strided" or batch is None:
        return None
    panels = ceil_div(n, tile.tile_n)
    thread_blocks = ceil_div(m, TILE_M) * panels * batch.count * tile.cluster
    if thread_blocks >= INT32:
        return None
    # Of a column-major dense, columns beyond the last one are not loaded.
    box_n = min(tile.tile_n, n) if layout == "columns" and panels == 1 else tile.tile_n
    loaded = stage_bytes(size, box_n)
    stages = ceil_div(2 * p.packed_columns * size, _STAGE_BYTES_K)
    problem = kernel_struct(SOURCES[0], "SemiStructuredSkinnyProblem")(
        m=m,
        n=n,
        column_tiles=panels,
        batches=prod(p.batch),
        stages=stages,
        stage_bytes=loaded,
        dense_batched=batch.dense != 0,
        padding=0,
    )
    store = "columns" if out.strides[-2] == out.itemsize else "rows"
    launch = Launch(
        kernel(SOURCES[0], ARCHS, DENSE=layout, STORE=store, **p.defines, **tile.defines),
        (thread_blocks,),
        (_THREADS,),
        (
            tensor_map(p.packed, (TILE_M, _PACKED_BYTES // size), _PACKED_BYTES),
            codes_map(p.meta, m, (_PAIRS, TILE_M)),
            _dense_map(dense, layout, batch, box_n),
            matrix_view(out, p.batch),
            batch_dims(p.batch),
            problem,
            p.epilogue,
        ),
        tile.shared_memory,
    )
    return *copies, launch


def _dense_map(dense: Any, layout: str, batch: Batch, box_n: int) -> bytes:
    """Return the map of boxes as wide as a swizzle may be: of k for ``box_n`` columns, or of n."""
    size = dense.itemsize
    if layout == "columns":
        return dense_maps(dense, layout, batch, box_n, _SWIZZLE // size)[0]
    wide = min(box_n, _SWIZZLE // size)
    batches, apart = (batch.count, batch.dense) if batch.dense else (1, 16)
    return tensor_map(
        dense,
        (1, _STAGE_BYTES_K // size, wide),
        wide * size,
        shape=(batches, *dense.shape[-2:]),
        strides=(apart, dense.strides[-2], size),
    )
