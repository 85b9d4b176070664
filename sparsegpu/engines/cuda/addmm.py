"""BSR @ dense on the device: chooses the kernel and describes the operands to it."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ..._epilogue import Epilogue
from ...pattern import Pattern
from ._addmm_sm90 import launch_sm90, one_batch, tile_for
from ._blocks import ceil_div, grid, size_of
from ._epilogue_args import batched_operands, epilogue_args
from .runtime.config import bsr_addmm_config
from .runtime.launch import kernel
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, merged_batch, vector_view

_SIZES = struct.Struct("<3q2i")


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
    lie. ``config={"path": "simt"}`` or ``{"path": "mma"}`` chooses the kernel; without it
    `runtime.config` does, from the metadata alone.
    """
    order = None  # where a block of the pattern lies, if not at its own number
    if transposed:
        pattern, flat_order = pattern.transposed()
        order = flat_order.reshape(pattern.indices.shape)
    bm, bk = pattern.blocksize
    n = out.shape[-1]
    batch = merged_batch(
        out.shape[:-2],
        (out, 2),
        (pattern.indptr, 1),
        (pattern.indices, 1),
        (order, 1),
        (data, 3),
        (dense, 2),
        *batched_operands(epilogue),
    )
    defines, epilogue_argument = epilogue_args(
        epilogue, batch, accumulator_dtype(data.dtype), out.dtype
    )
    empty = epilogue.alpha == 0 or pattern.nnzb == 0
    data = contiguous_blocks(data)
    layout = layout_of(dense)
    path = (config or {}).get("path")
    if not empty and path in {None, "wgmma"} and n > 16:
        tile = tile_for(out, pattern, data, dense, layout, transposed)
        one = one_batch(batch, pattern, dense, out)
        if tile is not None and one is not None:
            launch_sm90(
                out,
                pattern,
                order,
                data,
                dense,
                layout,
                batch,
                one,
                defines,
                epilogue_argument,
                tile,
            )
            return
    piece = 4 if transposed and data.itemsize == 1 else 16  # what the kernel copies at a time
    choice = bsr_addmm_config(
        data.dtype,
        (bm, bk),
        n,
        dense=layout,
        data_aligned=not empty and aligned(data, piece),
        transposed=transposed,
        allow_tf32=allow_tf32,
        config=config,
    )
    launch = kernel(
        choice.source,
        T=ctype(data.dtype),
        INDEX=ctype(pattern.indices.dtype),
        TRANSPOSED=int(transposed),
        **defines,
        **choice.defines,
    )
    batches, block_rows = size_of(batch), pattern.block_shape[0]
    row_tiles = batches * block_rows * ceil_div(bm, choice.tile_m)
    launch(
        grid(row_tiles * ceil_div(n, choice.tile_n)),
        (choice.threads,),
        (
            matrix_view(out, batch),
            vector_view(None if empty else pattern.indptr, batch),
            vector_view(None if empty else pattern.indices, batch),
            vector_view(None if empty else order, batch),
            matrix_view(None if empty else data[..., 0, :, :], batch),
            matrix_view(None if empty else dense, batch),
            batch_dims(batch),
            np.void(_SIZES.pack(batches, block_rows, n, bm, bk)),
            epilogue_argument,
        ),
        choice.shared_memory,
    )


def contiguous_blocks(data: Any) -> Any:
    """Return ``data`` with C-contiguous (nnzb, bm, bk), copied on the device if it must be."""
    _, bm, bk = data.shape[-3:]
    item = data.itemsize
    if data.size == 0 or all(
        n == 1 or s == wanted
        for n, s, wanted in zip(
            data.shape[-3:], data.strides[-3:], (bm * bk * item, bk * item, item), strict=True
        )
    ):
        return data
    return data.copy(order="C")


def aligned(array: Any, size: int) -> bool:
    """Whether the array, every row of its matrices and every batch start at multiples of ``size``.

    The last dimension is the one that is walked; its stride does not count.
    """
    return array.data.ptr % size == 0 and all(
        n == 1 or s % size == 0 for n, s in zip(array.shape[:-1], array.strides[:-1], strict=True)
    )


def layout_of(dense: Any) -> str:
    """Return how a (*B, K, N) operand lies in memory.

    Returns
    -------
    "rows" or "columns" when 16-byte pieces along a row or a column can be copied as they are;
    "bytes" for int8 rows of which 4-byte pieces can be copied; "strided" for all else.
    """
    by_column = dense.swapaxes(-1, -2)
    if _unit(dense, -1) and aligned(dense, 16):
        return "rows"
    if _unit(dense, -2) and aligned(by_column, 16):
        return "columns"
    if dense.itemsize == 1 and _unit(dense, -1) and aligned(dense, 4):
        return "bytes"
    return "strided"


def _unit(array: Any, axis: int) -> bool:
    return array.shape[axis] == 1 or array.strides[axis] == array.itemsize
