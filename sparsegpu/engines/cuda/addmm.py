"""BSR @ dense on the device: the first path that serves a product computes it."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..._epilogue import Epilogue
from ...pattern import Pattern
from ._addmm_dense import dense_serves, multiply_dense
from ._addmm_skinny import skinny_launches
from ._addmm_sm90 import sm90_launches
from ._addmm_vector import vector_launches
from ._blocks import aligned, ceil_div, grid, size_of
from ._product import Product, product_of
from .runtime.config import bsr_addmm_config
from .runtime.launch import Launch, kernel
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, vector_view

_SIZES = struct.Struct("<3q2i")
_SIZES_BY_LENGTH = struct.Struct("<4q")
_TOGETHER = 384  # thread blocks that run together, about


def bsr_addmm(
    out: Any,
    pattern: Pattern,
    data: Any,
    dense: Any,
    epilogue: Epilogue,
    *,
    transposed: bool = False,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> tuple[Launch, ...] | None:
    """Write ``act(beta * input + left_alpha * (alpha * (bsr @ dense)) * right_alpha)``.

    ``transposed``: of the transpose of (pattern, data), whose blocks the kernel reads where they
    lie. ``config={"path": name}`` chooses one of "simt", "fma", "mma", "wgmma", "skinny",
    "vector" and "dense"; without it the fastest that serves the operands, by metadata alone.

    Returns
    -------
    tuple of Launch, or None
        What does all of it again, on whatever values the same memory holds then; None where a
        copy of the blocks had to be made, which is gone by then, or cuBLAS multiplied.
    """
    product = product_of(out, pattern, data, dense, epilogue, transposed, allow_tf32)
    path = (config or {}).get("path")
    if dense_serves(product, path):
        multiply_dense(product)
        return None
    launches = vector_launches(product, config) or skinny_launches(product, config)
    if launches is None and path in {None, "wgmma"}:
        launches = sm90_launches(product, config)
    launches = launches or (general_launch(product, config),)
    for launch in launches:
        launch()
    return launches if product.data is data else None


def general_launch(product: Product, config: dict[str, Any] | None) -> Launch:
    """Return the launch of a kernel that takes any layout: ``"simt"``, ``"fma"``, ``"mma"``."""
    p = product
    bm, bk = p.pattern.blocksize
    n = p.out.shape[-1]
    piece = 4 if p.transposed and p.data.itemsize == 1 else 16  # what the kernel copies at a time
    choice = bsr_addmm_config(
        p.data.dtype,
        (bm, bk),
        n,
        dense=p.layout,
        data_aligned=not p.empty and aligned(p.data, piece),
        by_column=abs(p.dense.strides[-2]) < abs(p.dense.strides[-1]),
        transposed=p.transposed,
        allow_tf32=p.allow_tf32,
        config=config,
    )
    compiled = kernel(
        choice.source,
        T=ctype(p.data.dtype),
        INDEX=ctype(p.pattern.indices.dtype),
        TRANSPOSED=int(p.transposed),
        **p.defines,
        **choice.defines,
    )
    batches, block_rows = size_of(p.batch), p.pattern.block_shape[0]
    row_tiles = batches * block_rows * ceil_div(bm, choice.tile_m)
    rows: tuple[Any, ...] = ()
    sizes = _SIZES.pack(batches, block_rows, n, bm, bk)
    if choice.by_length:
        rows = (vector_view(None if p.empty else rows_by_length(p.pattern), p.batch),)
        sizes = _SIZES_BY_LENGTH.pack(batches, block_rows, n, ceil_div(_TOGETHER, row_tiles))
    return Launch(
        compiled,
        grid(row_tiles * ceil_div(n, choice.tile_n)),
        (choice.threads,),
        (
            matrix_view(p.out, p.batch),
            *rows,
            vector_view(None if p.empty else p.pattern.indptr, p.batch),
            vector_view(None if p.empty else p.pattern.indices, p.batch),
            vector_view(None if p.empty else p.order, p.batch),
            matrix_view(None if p.empty else p.data[..., 0, :, :], p.batch),
            matrix_view(None if p.empty else p.dense, p.batch),
            batch_dims(p.batch),
            np.void(sizes),
            p.epilogue,
        ),
        choice.shared_memory,
    )


def rows_by_length(pattern: Pattern) -> Any:
    """Return the block rows, those with most blocks first; made once and kept with the pattern."""

    def build() -> Any:
        counts = pattern.indptr[..., 1:] - pattern.indptr[..., :-1]
        return pattern.xp.argsort(-counts, axis=-1).astype(pattern.indices.dtype)

    return pattern.memo("block rows by length", build)
