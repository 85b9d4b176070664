"""2:4 @ dense on Hopper through wgmma (``semi_structured_addmm_sm90.cu``).

A ``dense`` whose layout TMA or wgmma cannot read is copied to aligned lines first. The copy and a
product by wgmma take less time than a product by mma.sp, even with 32 rows.
"""

from __future__ import annotations

from dataclasses import replace

from ...._math import ceil_div
from ..runtime.architectures import HOPPER
from ..runtime.device import multiprocessors
from ..runtime.launch import Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.tensor_map import tensor_map
from ..runtime.types import ctype
from ..runtime.view import batch_dims, matrix_view
from ._dense_lines import tensor_core_lines
from ._facts import HALVES, Facts
from ._fields import Fields
from ._product_24 import Product24, counts_in_32_bits
from ._sm90 import (
    MOST_STAGES,
    PAIRS,
    SHARED,
    STAGE_BYTES_K,
    STORE_BUFFERS,
    THREADS,
    TILE_M,
    ClusterTile,
    covering,
    pair_bytes,
    widths,
)
from ._tma import INT32, codes_map, dense_maps, one_batch, out_map, store_mode

NAME = "wgmma_sp"
SOURCES = ("semi_structured_addmm_sm90",)
DTYPES, ARCHS = (*HALVES, "int8", "float32", "float8_e4m3fn"), HOPPER
TENSOR_CORES = True
BY_ADDRESS = {
    "DENSE": ("rows", "columns"),
    "STORE": ("rows", "columns", "unaligned", "elementwise"),
}

#: Up to so many columns waste most of a tile.
_FEW_COLUMNS = 32
#: Two barriers for each stage, after everything else: if alignment took space, five stages of 8-bit
#: types and a store buffer for each warp would not fit.
_BARRIERS = 2 * 8 * MOST_STAGES
#: Bytes of ``dense`` from which on pairs of thread blocks share it; loading less is cheap.
_LARGE = 8 << 20

serves = counts_in_32_bits


def pays(f: Facts) -> bool:
    """Return whether columns fill enough of a tile."""
    return f.columns > _FEW_COLUMNS


def facts(p: Product24) -> Facts:
    """Return what the tile depends on; ``one_buffer`` says whether the epilogue reads little."""
    batch = one_batch(p.batch, 1, p.out, p.out)  # of the result alone: dense may be copied
    stored = batch is not None and store_mode(p.out, batch) in {"rows", "columns"}
    sides = p.defines["INPUT"] == p.defines["RIGHT"] == "none"
    return replace(p.facts(), one_buffer=stored and sides and p.defines["ACT"] != "gelu_erf")


def tile(f: Facts, fields: Fields) -> ClusterTile | None:
    """Return the tile; ``fields`` may say ``tile_n``, ``stages`` and ``cluster``.

    Examples
    --------
    >>> import numpy as np
    >>> chosen = tile(Facts(dtype=np.dtype("float16"), shape=(8192, 8192, 8192)), Fields())
    >>> chosen.tile_n, chosen.cluster, chosen.defines["STAGES"]
    (256, 2, 4)
    """
    if not f.tensor_cores:
        return None
    (m, k, n), size = f.shape, f.itemsize
    allowed = widths(f.out_itemsize == 1)
    tile_n = fields.pick("tile_n", covering(n, allowed), allowed)
    # With an odd number of row tiles the last pair computes one that does not exist.
    panels = ceil_div(n, tile_n)
    rounds, of_pairs = (
        ceil_div(ceil_div(m, TILE_M * high) * panels, f.multiprocessors // high) for high in (1, 2)
    )
    pays = of_pairs <= rounds and k * n * size >= _LARGE
    clusters = (1, 2) if tile_n > 64 else (1,)
    cluster = fields.pick("cluster", clusters[-1] if pays else 1, clusters)
    stage = (TILE_M // 2 + tile_n) * STAGE_BYTES_K + PAIRS * pair_bytes(size)
    two, one = (
        min((SHARED - _BARRIERS - buffers) // stage, MOST_STAGES)
        for buffers in (STORE_BUFFERS, STORE_BUFFERS // 2)
    )
    # Thread blocks of a pair wait for each other less with another stage.
    most = one if f.one_buffer and cluster > 1 else two
    stages = fields.pick("stages", most, range(2, most + 1))
    buffers = 1 if stages > two else 2
    names = {
        "T": ctype(f.dtype),
        "TILE_N": tile_n,
        "STAGES": stages,
        "CLUSTER": cluster,
        "STORE_BUFFERS": buffers,
    }
    return ClusterTile(
        tile_n, cluster, stages * stage + STORE_BUFFERS * buffers // 2 + _BARRIERS, names
    )


def launches(p: Product24, tile: ClusterTile) -> tuple[Launch, ...] | None:
    """Return the launches, or None where tensor maps or 32-bit numbers do not serve."""
    m, n = p.out.shape[-2:]
    size = p.packed.itemsize
    dense, layout, copies = tensor_core_lines(p.dense, size != 2, may_copy=p.packed_columns > 0)
    batch = one_batch(p.batch, 1, dense, p.out)
    if layout == "strided" or batch is None:
        return None
    store = store_mode(p.out, batch)
    tiles = ceil_div(m, TILE_M * tile.cluster) * ceil_div(n, tile.tile_n) * batch.count
    if tiles * tile.cluster >= INT32:
        return None
    clusters = min(tiles, multiprocessors() // tile.cluster)
    stages = ceil_div(2 * p.packed_columns * size, STAGE_BYTES_K)
    launch = Launch(
        kernel(SOURCES[0], ARCHS, DENSE=layout, STORE=store, **p.defines, **tile.defines),
        (clusters * tile.cluster,),
        (THREADS,),
        (
            tensor_map(p.packed, (TILE_M, STAGE_BYTES_K // 2 // size), STAGE_BYTES_K // 2),
            codes_map(p.meta, m, (PAIRS, TILE_M)),
            *dense_maps(dense, layout, batch, tile.tile_n // tile.cluster, STAGE_BYTES_K // size),
            out_map(p.out, batch, store),
            matrix_view(p.out, p.batch),
            batch_dims(p.batch),
            kernel_struct(SOURCES[0], "SemiStructuredProblem")(
                m=m, n=n, batches=batch.count, stages=stages, dense_batched=batch.dense != 0
            ),
            p.epilogue,
        ),
        tile.shared_memory,
    )
    return *copies, launch
