"""A dense operand copied to aligned lines, for TMA and for wgmma (`dense_lines.cu`).

A copy runs at the speed of memory; the product after it saves many times its duration.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...._math import ceil_div
from .._grid import THREADS, grid
from ..runtime.launch import Launch, kernel
from ..runtime.submission import workspace
from ..runtime.types import ctype
from ..runtime.view import MAX_BATCH_DIMS, batch_dims, matrix_view
from ._product import layout_of

_VECTOR = 16  # bytes
_ALIGNMENT = 128  # of the lines of workspace
_LINES_ALONG, _SIDE_ACROSS, _SIDE_ANY = 24, 16, 64  # of tiles: lines, 16-byte vectors, elements


def tensor_core_lines(
    dense: Any, by_column: bool, *, may_copy: bool = True
) -> tuple[Any, str, tuple[Launch, ...]]:
    """Return ``dense`` in lines for wgmma and mma.sp, their layout, and the copy that makes them.

    A column-major operand is read in place, a row-major one if it is 16-bit; any other, one with
    negative strides included, is copied to aligned lines.

    Parameters
    ----------
    dense : array
    by_column : bool
        Whether a copy is column-major; a row-major copy is for 16-bit types only.
    may_copy : bool
        Whether workspace may be taken for a copy.

    Returns
    -------
    lines : array
    layout : {"rows", "columns", "strided"}
        "strided": neither readable in place nor copied; ``lines`` is ``dense``.
    copies : tuple of Launch
        Empty, or the one that fills ``lines``.
    """
    layout = layout_of(dense)
    steps = zip(dense.shape[-2:], dense.strides[-2:], strict=True)
    forward = all(stride > 0 or length == 1 for length, stride in steps)
    tf32_rows = layout == "rows" and dense.itemsize == 4
    if forward and not (by_element(layout, dense.itemsize) or tf32_rows):
        return dense, layout, ()
    if not may_copy or dense.ndim - 2 > MAX_BATCH_DIMS:
        return dense, "strided", ()
    # Bytes are copied, whatever 8-bit type they have.
    lines, copy = aligned_lines(dense.view(np.int8) if dense.itemsize == 1 else dense, by_column)
    return lines, "columns" if by_column else "rows", (copy,)


def by_element(layout: str, itemsize: int) -> bool:
    """Return whether tiles for the tensor cores are loaded element by element.

    Strided lines are, and rows of 8-bit types: no instruction transposes bytes.
    """
    return layout == "strided" or (itemsize == 1 and layout != "columns")


def aligned_lines(dense: Any, by_column: bool) -> tuple[Any, Launch]:
    """Return workspace for a copy of ``dense`` in aligned rows or columns, and the launch."""
    import cupy

    lines = dense.swapaxes(-1, -2) if by_column else dense
    *batch, count, length = lines.shape
    size = lines.itemsize
    pitch = ceil_div(length * size, _ALIGNMENT) * _ALIGNMENT // size
    shape, batches = tuple(batch), prod(tuple(batch))
    memory = workspace(batches * count * pitch * size)
    copy = cupy.ndarray((*shape, count, pitch), lines.dtype, memory.data)[..., :length]
    source, tile = _source(lines)
    tiles = batches * ceil_div(count, tile[0]) * ceil_div(length, tile[1])
    launch = Launch(
        kernel("dense_lines", T=ctype(lines.dtype), **source),
        grid(tiles),
        (THREADS,),
        (
            copy,
            matrix_view(lines, shape),
            batch_dims(shape),
            np.int64(batches),
            np.int64(count),
            np.int64(length),
            np.int64(pitch),
        ),
    )
    return copy.swapaxes(-1, -2) if by_column else copy, launch


def _source(lines: Any) -> tuple[dict[str, Any], tuple[int, int]]:
    """Return how lines lie in the source of the copy, and the tile that a thread block copies."""
    size = lines.itemsize
    per_vector = _VECTOR // size
    if lines.strides[-1] == size:
        return {"FROM": "along"}, (_LINES_ALONG, 32 * per_vector)
    if lines.strides[-2] == size:
        apart = (lines.data.ptr, *lines.strides[:-2], lines.strides[-1])
        whole = lines.shape[-2] % per_vector == 0 and all(x % _VECTOR == 0 for x in apart)
        side = _SIDE_ACROSS * per_vector
        return {"FROM": "across", "ALIGNED": int(whole)}, (side, side)
    return {"FROM": "any"}, (_SIDE_ANY, _SIDE_ANY)
