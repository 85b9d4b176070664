"""BSR @ dense of 2:4 blocks on the device: chooses the kernel and describes the operands to it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ..._checks import check_choice
from ..._epilogue import Epilogue
from ...pattern import Pattern
from ._blocks import ceil_div, grid, size_of
from ._boxes import INT32, codes_map
from ._dense_lines import tensor_core_lines
from ._product import Product, product_of
from ._row_group_product import row_group_launches
from .runtime.fields import Fields, refused
from .runtime.launch import (
    Launch,
    compute_capability,
    kernel,
    multiprocessors,
    runs_here,
    submit,
)
from .runtime.sparse_blocks_tile import SparseBlocksTile, sparse_blocks_tile
from .runtime.sparse_tile import PAIRS
from .runtime.tensor_map import tensor_map
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, vector_view
from .semi_structured import mma_columns, stage_bytes, tensor_cores_multiply

PATHS = ("wgmma_sp", "mma_sp", "simt")

_FUNCTION = "bsr_addmm"
_PLAIN_SIZES = struct.Struct("<3q2i")
_SIMT_ROWS, _SIMT_THREADS, _MMA_THREADS = 32, 128, 128
_STAGES = 3


def bsr_semi_structured_addmm(
    out: Any,
    pattern: Pattern,
    packed: Any,
    meta: Any,
    dense: Any,
    epilogue: Epilogue,
    *,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (bsr @ dense)) * right_alpha)``.

    ``config={"path": name}`` chooses "wgmma_sp", "mma_sp" or "simt", ``"tile_n"`` ... fields of
    its tile; without it the metadata of the operands decides.

    Raises
    ------
    runtime.fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    product = product_of(out, pattern, packed, dense, epilogue, False, allow_tf32)
    submit(*_configured(product, meta, config), whole=True)


def _configured(p: Product, meta: Any, config: dict[str, Any] | None) -> tuple[Launch, ...]:
    """Return what a product launches: of the paths that serve it the fastest, or the one named."""
    path = None
    if config is not None:
        if "path" not in config:
            raise refused("config", "a 'path' besides its fields", repr(config))
        path = config["path"]
        check_choice(_FUNCTION, "config['path']", path, PATHS)
    launches = None
    if path in {None, "wgmma_sp"}:
        launches = _wgmma_launches(p, meta, config)
    if launches is None and path in {None, "mma_sp"}:
        launches = _mma_launch(p, meta, config)
    if launches is None and path not in {None, "simt"}:
        expected = f"another path: these operands or this device are not for {path!r}"
        raise refused("config['path']", expected, repr(path))
    return launches or _simt_launch(p, meta, config)


def _mma_launch(
    p: Product, meta: Any, config: Mapping[str, Any] | None
) -> tuple[Launch, ...] | None:
    """Return the launches through mma.sp, which takes any block, or None.

    What of `dense` its copies cannot bring as it lies is copied first, as for wgmma.
    """
    allowed = tensor_cores_multiply(p.data.dtype, compute_capability(), p.allow_tf32)
    if not allowed or not (p.empty or (p.data.data.ptr % 16 == meta.data.ptr % 16 == 0)):
        return None
    layout = "columns"
    copies: tuple[Launch, ...] = ()
    if not p.empty:
        dense, layout, copies = tensor_core_lines(p.dense, p.data.itemsize != 2)
        p = replace(p, dense=dense)
    bm, n, fields = p.pattern.blocksize[0], p.out.shape[-1], Fields(config)
    # A tile of 32 rows is shared by four warps side by side.
    tile_m = fields.pick("tile_m", next((t for t in (32, 64) if t >= bm), 128), (32, 64, 128))
    rows = size_of(p.batch) * p.pattern.block_shape[0] * ceil_div(bm, tile_m) * tile_m
    widths = (32, 64, 128) if tile_m == 32 else (16, 32, 64, 128)
    width = mma_columns(n, rows // 128, multiprocessors())
    tile_n = fields.pick("tile_n", max(width, widths[0]), widths)
    fields.finish()
    defines = {"DENSE": layout, "TILE_M": tile_m, "STAGES": _STAGES}
    shared = _STAGES * stage_bytes(tile_m, tile_n)
    plain = _plain_launch(p, meta, "sm80", tile_m, tile_n, _MMA_THREADS, defines, shared)
    return *copies, *plain


def _simt_launch(p: Product, meta: Any, config: Mapping[str, Any] | None) -> tuple[Launch, ...]:
    """Return the launch of the kernel that takes any dtype, block, layout and device."""
    fields = Fields(config)
    tile_n = fields.pick("tile_n", 64 if p.out.shape[-1] > 16 else 16, (16, 64))
    fields.finish()
    return _plain_launch(p, meta, "simt", _SIMT_ROWS, tile_n, _SIMT_THREADS, {})


def _plain_launch(
    p: Product,
    meta: Any,
    source: str,
    tile_m: int,
    tile_n: int,
    threads: int,
    defines: dict[str, Any],
    shared_memory: int = 0,
) -> tuple[Launch, ...]:
    """Return the launch of a kernel that walks the block rows as they lie."""
    (bm, bk), n = p.pattern.blocksize, p.out.shape[-1]
    batches, block_rows = size_of(p.batch), p.pattern.block_shape[0]
    launch = Launch(
        kernel(
            f"bsr_semi_structured_addmm_{source}",
            T=ctype(p.data.dtype),
            INDEX=ctype(p.pattern._indices.dtype),
            TILE_N=tile_n,
            **defines,
            **p.defines,
        ),
        grid(batches * block_rows * ceil_div(bm, tile_m) * ceil_div(n, tile_n)),
        (threads,),
        (
            matrix_view(p.out, p.batch),
            vector_view(None if p.empty else p.pattern._indptr, p.batch),
            vector_view(None if p.empty else p.pattern._indices, p.batch),
            matrix_view(None if p.empty else p.data[..., 0, :, :], p.batch),
            matrix_view(None if p.empty else meta[..., 0, :, :], p.batch),
            matrix_view(None if p.empty else p.dense, p.batch),
            batch_dims(p.batch),
            np.void(_PLAIN_SIZES.pack(batches, block_rows, n, bm, bk)),
            p.epilogue,
        ),
        shared_memory,
    )
    return (launch,)


def _wgmma_launches(
    p: Product, meta: Any, config: Mapping[str, Any] | None
) -> tuple[Launch, ...] | None:
    """Return the launches through wgmma, or None where it does not serve.

    What of `dense` the copy engine or wgmma cannot read as it lies is copied to aligned lines
    first, in workspace.
    """
    tile = _tile_for(p, meta, config)
    if tile is None:
        return None
    dense, layout, copies = tensor_core_lines(p.dense, p.data.itemsize != 2)
    if layout == "strided":
        return None
    launches = _launches(replace(p, dense=dense, layout=layout), meta, tile)
    return None if launches is None else (*copies, *launches)


def _tile_for(p: Product, meta: Any, config: Mapping[str, Any] | None) -> SparseBlocksTile | None:
    if p.empty or not runs_here("bsr_semi_structured_addmm_sm90"):
        return None
    if p.data.dtype == np.float32 and not p.allow_tf32:
        return None
    density = p.pattern.nnzb / prod(p.pattern.block_shape)
    n = p.out.shape[-1]
    tile = sparse_blocks_tile(p.data.dtype, p.pattern.blocksize, n, Fields(config), density)
    fits = (
        p.data.data.ptr % 16 == meta.data.ptr % 16 == 0
        and p.data.size // p.data.shape[-1] < INT32  # the copy engine's coordinates
        and max(*p.dense.shape[-2:], p.out.shape[-2]) < INT32
    )
    return tile if fits else None


def _launches(p: Product, meta: Any, tile: SparseBlocksTile) -> tuple[Launch, ...] | None:
    bm, bk = p.pattern.blocksize
    return row_group_launches(
        p,
        tile,
        "bsr_semi_structured_addmm_sm90",
        (
            _packed_map(p.data, bk // 2, tile),
            codes_map(meta, bm, (tile.together * PAIRS, tile.slice_m)),
        ),
        TOGETHER=tile.together,
        BAND=tile.band,
    )


def _packed_map(packed: Any, half: int, tile: SparseBlocksTile) -> np.void:
    """Return the map of all packed blocks' rows, one below the other."""
    size = packed.itemsize
    across = tile.together * tile.step_k // 2
    return tensor_map(
        packed,
        (tile.slice_m, across),
        across * size,
        shape=(packed.size // half, half),
        strides=(half * size, size),
    )
