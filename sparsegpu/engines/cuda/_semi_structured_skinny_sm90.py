"""2:4 @ few columns on Hopper: describes operands to the copy engine and launches.

``cuda_src/semi_structured_addmm_skinny_sm90.cu`` says how the product is made.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ._blocks import ceil_div
from ._boxes import INT32, Batch, codes_map, dense_maps, one_batch
from ._dense_lines import tensor_core_lines
from ._sparse_product import SparseProduct
from .runtime.fields import Fields
from .runtime.hopper_tile import TILE_M
from .runtime.launch import Launch, kernel, multiprocessors, runs_here
from .runtime.skinny_sparse_tile import (
    PAIRS,
    STAGE_BYTES_K,
    THREADS,
    skinny_sparse_tile,
    stage_bytes,
)
from .runtime.tensor_map import tensor_map
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view

_SOURCE = "semi_structured_addmm_skinny_sm90"
_SIZES = struct.Struct("<2q2I4i")
_SWIZZLE = 128  # bytes, the widest
_PACKED_BYTES = STAGE_BYTES_K // 2  # of a row of a stage


def skinny_sm90_launches(
    product: SparseProduct, config: Mapping[str, Any] | None
) -> tuple[Launch, ...] | None:
    """Return the launches that compute a product, or None where this kernel does not serve.

    A `dense` that the copy engine cannot read as it lies, or wgmma not as it stands, is copied to
    aligned lines first, in workspace: it is small.

    Parameters
    ----------
    product : SparseProduct
    config : mapping, optional
        Fields of the tile.
    """
    p, out, dense = product, product.out, product.dense
    (m, n), k = out.shape[-2:], dense.shape[-2]
    if not m * n * k or max(m, n, k) >= INT32 or not runs_here(_SOURCE):
        return None
    size = p.packed.itemsize
    if size == 1:
        dense = dense.view(np.int8)
    dense, layout, copies = tensor_core_lines(dense, size != 2 or dense.strides[-2] == size)
    if layout == "strided":
        return None
    walk = one_batch(p.batch, 1, dense, dense)  # `out` may be walked in any way
    if walk is None:
        return None
    row_tiles, stages = ceil_div(m, TILE_M), ceil_div(2 * p.terms * size, STAGE_BYTES_K)
    tile = skinny_sparse_tile(
        size,
        n,
        row_tiles * walk.count,
        ceil_div(k * size, STAGE_BYTES_K),
        multiprocessors(),
        Fields(config, "semi_structured_addmm"),
    )
    panels = ceil_div(n, tile.tile_n)
    thread_blocks = row_tiles * panels * walk.count * tile.cluster
    if thread_blocks >= INT32:
        return None
    # Columns of a dense by columns that there are not need not be brought.
    box_n = min(tile.tile_n, n) if layout == "columns" and panels == 1 else tile.tile_n
    brought = stage_bytes(size, box_n)
    sizes = _SIZES.pack(m, n, panels, prod(p.batch), stages, brought, walk.dense != 0, 0)
    launch = Launch(
        kernel(
            _SOURCE,
            T=ctype(p.dtype),
            DENSE=layout,
            STORE="columns" if out.strides[-2] == out.itemsize else "rows",
            **tile.defines,
            **p.defines,
        ),
        (thread_blocks,),
        (THREADS,),
        (
            tensor_map(p.packed, (TILE_M, _PACKED_BYTES // size), _PACKED_BYTES),
            codes_map(p.meta, m, (PAIRS, TILE_M)),
            _dense_map(dense, layout, walk, box_n),
            matrix_view(out, p.batch),
            batch_dims(p.batch),
            np.void(sizes),
            p.epilogue,
        ),
        tile.shared_memory,
    )
    return *copies, launch


def _dense_map(dense: Any, layout: str, batch: Batch, box_n: int) -> np.void:
    """Return the map of boxes as wide as a swizzle may be: of k for ``box_n`` columns, or of n."""
    size = dense.itemsize
    if layout == "columns":
        return dense_maps(dense, layout, batch, box_n, _SWIZZLE // size)[0]
    wide = min(box_n, _SWIZZLE // size)
    batches, apart = (batch.count, batch.dense) if batch.dense else (1, 16)
    return tensor_map(
        dense,
        (1, STAGE_BYTES_K // size, wide),
        wide * size,
        shape=(batches, *dense.shape[-2:]),
        strides=(apart, dense.strides[-2], size),
    )
