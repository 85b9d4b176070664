"""BSR @ dense on the device: the first path that serves a product computes it.

What was measured best for such products goes before the model, which is the order of the paths and
what each serves.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np

from ..._epilogue import Epilogue
from ...pattern import Pattern
from ._addmm_dense import dense_launches
from ._addmm_groups import group_launches
from ._addmm_skinny import skinny_launches
from ._addmm_skinny_sm90 import skinny_sm90_launches
from ._addmm_sm90 import sm90_launches
from ._addmm_vector import vector_launches
from ._blocks import aligned, ceil_div, grid, size_of
from ._dense_lines import aligned_lines, by_element
from ._product import Product, product_of
from ._row_shares import rows_by_length
from ._tuned import tuned_config
from .runtime.config import bsr_addmm_config
from .runtime.fields import MODEL, ConfigError, Fields, refused
from .runtime.launch import Launch, Work, kernel, submit
from .runtime.types import ctype
from .runtime.view import MAX_BATCH_DIMS, batch_dims, matrix_view, vector_view

_SIZES = struct.Struct("<3q2i")
_SIZES_BY_LENGTH = struct.Struct("<4q")


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
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (bsr @ dense)) * right_alpha)``.

    ``transposed``: of the transpose of (pattern, data), whose blocks the kernel reads where they
    lie. ``config={"path": name, field: value, ...}`` chooses one of "simt", "fma", "mma", "wgmma",
    "groups", "skinny", "vector" and "dense", and fields of its tile, or the "model". Without it the
    choice is what was measured best for such operands, where they can have that, else the model's;
    by metadata alone.

    Raises
    ------
    runtime.fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    product = product_of(out, pattern, data, dense, epilogue, transposed, allow_tf32)
    works = configured(product, config) if config else tuned(product) or configured(product, None)
    submit(*works, whole=product.data is data)  # or its blocks were copied


def tuned(product: Product) -> tuple[Work, ...] | None:
    """Return what a product launches as it was measured best, None where the model is to choose.

    What was tuned may have had another epilogue, batch or alignment: where a product cannot have
    the same, the model chooses, too.
    """
    config = tuned_config(product)
    if config is None:
        return None
    try:
        return configured(product, config)
    except ConfigError:
        return None


def configured(product: Product, config: dict[str, Any] | None) -> tuple[Work, ...]:
    """Return what a product launches under a configuration, the model's where that is None."""
    if config and "path" not in config:
        raise refused("config", "a 'path' besides its fields", repr(config))
    if config and config["path"] == MODEL["path"]:
        Fields(config).finish()
        config = None
    return (
        dense_launches(product, config)
        or vector_launches(product, config)
        or skinny_sm90_launches(product, config)
        or skinny_launches(product, config)
        or sm90_launches(product, config)
        or group_launches(product, config)
        or general_launches(product, config)
    )


def general_launches(product: Product, config: dict[str, Any] | None) -> tuple[Launch, ...]:
    """Return the launches of a kernel that takes any layout: ``"simt"``, ``"fma"``, ``"mma"``."""
    p = product
    copies: tuple[Launch, ...] = ()
    columns_first = _columns_first(p)
    bm, bk = p.pattern.blocksize
    batches, block_rows, n = size_of(p.batch), p.pattern.block_shape[0], p.out.shape[-1]
    piece = 4 if p.transposed and p.data.itemsize == 1 else 16  # what the kernel copies at a time
    choice = bsr_addmm_config(
        p.data.dtype,
        (bm, bk),
        n,
        dense="columns" if columns_first else p.layout,
        data_aligned=not p.empty and aligned(p.data, piece),
        by_column=abs(p.dense.strides[-2]) < abs(p.dense.strides[-1]),
        transposed=p.transposed,
        allow_tf32=p.allow_tf32,
        block_rows=batches * block_rows,
        config=config,
    )
    if columns_first and choice.source == "bsr_addmm_sm80":
        dense, copy = aligned_lines(p.dense, True)
        p, copies = replace(p, dense=dense), (copy,)
    compiled = kernel(
        choice.source,
        T=ctype(p.data.dtype),
        INDEX=ctype(p.pattern._indices.dtype),
        TRANSPOSED=int(p.transposed),
        **p.defines,
        **choice.defines,
    )
    row_tiles = batches * block_rows * ceil_div(bm, choice.tile_m)
    rows: tuple[Any, ...] = ()
    sizes = _SIZES.pack(batches, block_rows, n, bm, bk)
    if choice.by_length:
        rows = (vector_view(None if p.empty else rows_by_length(p.pattern), p.batch),)
        sizes = _SIZES_BY_LENGTH.pack(batches, block_rows, n, ceil_div(choice.together, row_tiles))
    launch = Launch(
        compiled,
        grid(row_tiles * ceil_div(n, choice.tile_n)),
        (choice.threads,),
        (
            matrix_view(p.out, p.batch),
            *rows,
            vector_view(None if p.empty else p.pattern._indptr, p.batch),
            vector_view(None if p.empty else p.pattern._indices, p.batch),
            vector_view(None if p.empty else p.order, p.batch),
            matrix_view(None if p.empty else p.data[..., 0, :, :], p.batch),
            matrix_view(None if p.empty else p.dense, p.batch),
            batch_dims(p.batch),
            np.void(sizes),
            p.epilogue,
        ),
        choice.shared_memory,
    )
    return *copies, launch


def _columns_first(p: Product) -> bool:
    """Whether ``dense`` is to be copied to columns, where tiles would be put together of elements.

    Two blocks of a block column make up for the copy.
    """
    return (
        not p.empty
        and by_element(p.layout, p.data.itemsize)
        and p.pattern.blocksize[1] * p.data.itemsize % 16 == 0
        and p.pattern.nnzb >= 2 * p.pattern.block_shape[1]
        and p.dense.ndim - 2 <= MAX_BATCH_DIMS
    )
