"""2:4 @ dense on Hopper through wgmma: describes operands to the copy engine and launches.

``cuda_src/semi_structured_addmm_sm90.cu`` says how the product is made. A ``dense`` that the copy
engine or wgmma cannot read as it lies is copied first.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._blocks import ceil_div
from ._boxes import INT32, codes_map, dense_maps, one_batch, out_map, way_of_storing
from ._dense_lines import tensor_core_lines
from ._sparse_product import SparseProduct
from .runtime.fields import Fields
from .runtime.hopper_tile import STAGE_BYTES_K, TILE_M
from .runtime.launch import Launch, kernel, multiprocessors, runs_here
from .runtime.sparse_tile import PAIRS, sparse_tile
from .runtime.tensor_map import tensor_map
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view

_SIZES = struct.Struct("<3q2i")


def sm90_launches(
    product: SparseProduct, config: Mapping[str, Any] | None
) -> tuple[Launch, ...] | None:
    """Return the launches that compute a product, or None where this kernel does not serve.

    ``dense`` is read as it lies in rows (16-bit types) or columns of 16-byte pieces. Where it lies
    otherwise it is copied to aligned rows (8-bit types and TF32: columns) first, in workspace:
    K x N elements, lines rounded up to 128 bytes.
    Behind such a copy a product by wgmma takes less than one by mma.sp even of 32 rows.

    Parameters
    ----------
    product : SparseProduct
    config : mapping, optional
        Fields of the tile.
    """
    p, out, dense = product, product.out, product.dense
    m, n = out.shape[-2:]
    size, k = p.packed.itemsize, dense.shape[-2]
    if not m * n * k or max(m, n, k) >= INT32 or not runs_here("semi_structured_addmm_sm90"):
        return None
    dense, layout, copies = tensor_core_lines(dense, size != 2, may_copy=p.terms > 0)
    if layout == "strided":
        return None
    walk = one_batch(p.batch, 1, dense, out)
    if walk is None:
        return None
    store = way_of_storing(out, walk)
    plain = (
        store in {"rows", "columns"}
        and p.defines["INPUT"] == p.defines["RIGHT"] == "none"
        and p.defines["ACT"] != "gelu_erf"
    )
    processors = multiprocessors()
    fields = Fields(config, "semi_structured_addmm")
    tile = sparse_tile(size, (m, k, n), processors, fields, plain, out.itemsize == 1)
    compiled = kernel(
        "semi_structured_addmm_sm90",
        T=ctype(p.dtype),
        DENSE=layout,
        STORE=store,
        TILE_N=tile.tile_n,
        STAGES=tile.stages,
        CLUSTER=tile.cluster,
        STORE_BUFFERS=tile.strips,
        **p.defines,
    )
    tiles = ceil_div(m, TILE_M * tile.cluster) * ceil_div(n, tile.tile_n) * walk.count
    if tiles * tile.cluster >= INT32:
        return None
    clusters = min(tiles, processors // tile.cluster)
    stages = ceil_div(2 * p.terms * size, STAGE_BYTES_K)
    sizes = _SIZES.pack(m, n, walk.count, stages, walk.dense != 0)
    launch = Launch(
        compiled,
        (clusters * tile.cluster,),
        (tile.threads,),
        (
            tensor_map(p.packed, (TILE_M, STAGE_BYTES_K // 2 // size), STAGE_BYTES_K // 2),
            codes_map(p.meta, m, (PAIRS, TILE_M)),
            *dense_maps(dense, layout, walk, tile.tile_n // tile.cluster, STAGE_BYTES_K // size),
            out_map(out, walk, store),
            matrix_view(out, p.batch),
            batch_dims(p.batch),
            np.void(sizes),
            p.epilogue,
        ),
        tile.shared_memory,
    )
    return *copies, launch
