"""Host side of ``bsr_block_mask``, ``bsr_gather``, ``bsr_scatter``, ``bsr_transpose_blocks`` and
``bsr_sum_blocks``: dense to blocks and back, and blocks to blocks.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..._arrays import namespace
from ..._math import ceil_div, power_of_two_from
from ...pattern import Pattern
from ._column_order import column_order as column_order
from ._grid import (
    THREADS,
    aligned,
    contiguous_output,
    flat_blocks,
    flat_output,
    grid,
    same_place,
)
from ._transpose import transpose_pattern as transpose_pattern
from .runtime.launch import Launch, address, kernel, submit
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, merged_batch, vector_view

_TILE_COLUMNS = 256  # element columns of a tile, or 16-byte vectors of them
_MOST_COLUMNS = 256  # block columns that the kernels hold
_VECTOR_BYTES = 16
_ELEMENTS = 2048  # that a thread block moves at a time, when a block is smaller
_TRANSPOSE_SIDE = 32


def block_mask(dense: Any, blocksize: tuple[int, int]) -> Any:
    """Return which blocks hold a nonzero, bool (*batch, M/bm, K/bk)."""
    (bm, bk), outer = blocksize, dense.shape[:-2]
    batch = merged_batch(outer, (dense, 2))
    block_rows, block_columns = dense.shape[-2] // bm, dense.shape[-1] // bk
    mask = namespace(dense).empty((*outer, block_rows, block_columns), dtype=np.bool_)
    per_tile, tiles, threads, swapped = _tiling(dense, blocksize, block_columns)
    items = prod(batch) * block_rows * tiles
    launch = Launch(
        kernel("bsr_block_mask", T=ctype(dense.dtype)),
        grid(items),
        threads,
        (
            address(mask),
            matrix_view(dense, batch),
            batch_dims(batch),
            np.int64(tiles),
            np.int64(items),
            np.int64(block_rows),
            np.int64(block_columns),
            np.int32(bm),
            np.int32(bk),
            np.int32(per_tile),
            np.int32(swapped),
        ),
    )
    submit(launch)
    return mask


def gather_blocks(out_data: Any, pattern: Pattern, dense: Any) -> None:
    """Write the stored blocks of a dense matrix."""
    bm, bk = pattern.blocksize
    per_item = max(1, _ELEMENTS // (bm * bk))
    groups = ceil_div(pattern.nnzb, per_item)
    items = prod(out_data.shape[:-3]) * groups
    with flat_output(out_data) as out:
        batch = merged_batch(
            out.shape[:-2], (out, 2), (dense, 2), (pattern._rows, 1), (pattern._indices, 1)
        )
        launch = Launch(
            kernel("bsr_gather", T=ctype(dense.dtype), INDEX=ctype(pattern._indices.dtype)),
            grid(items),
            (THREADS,),
            (
                matrix_view(out, batch),
                matrix_view(dense, batch),
                vector_view(pattern._rows, batch),
                vector_view(pattern._indices, batch),
                batch_dims(batch),
                np.int64(groups),
                np.int64(items),
                np.int64(pattern.nnzb),
                np.int32(per_item),
                np.int32(bm),
                np.int32(bk),
            ),
        )
        submit(launch, whole=same_place(out, out_data))


def scatter_blocks(out_dense: Any, pattern: Pattern, data: Any) -> None:
    """Write all of the dense matrix: zeros between the blocks, duplicates summed (bool: or)."""
    blocks = flat_blocks(data)  # may be a copy: it has to outlive the launch
    submit(scatter_launch(out_dense, pattern, blocks), whole=same_place(blocks, data))


def scatter_launch(out_dense: Any, pattern: Pattern, blocks: Any) -> Launch:
    """Return the launch that writes all of the dense matrix, from `flat_blocks`."""
    bk = pattern.blocksize[1]
    block_rows, block_columns = pattern.block_shape
    wide = _elements_at_a_time(out_dense, blocks, bk)
    per_tile, tiles, threads, swapped = _tiling(out_dense, pattern.blocksize, block_columns, wide)
    batch = merged_batch(
        out_dense.shape[:-2],
        (out_dense, 2),
        (blocks, 2),
        (pattern._indptr, 1),
        (pattern._indices, 1),
    )
    items = prod(batch) * block_rows * tiles
    return Launch(
        kernel(
            "bsr_scatter", T=ctype(blocks.dtype), INDEX=ctype(pattern._indices.dtype), WIDE=wide
        ),
        grid(items),
        threads,
        (
            matrix_view(out_dense, batch),
            matrix_view(blocks, batch),
            vector_view(pattern._indptr, batch),
            vector_view(pattern._indices, batch),
            batch_dims(batch),
            np.int64(tiles),
            np.int64(items),
            np.int64(block_rows),
            np.int64(block_columns),
            np.int32(pattern.blocksize[0]),
            np.int32(bk),
            np.int32(per_tile),
            np.int32(swapped),
        ),
    )


def _elements_at_a_time(dense: Any, blocks: Any, bk: int) -> int:
    """Return the elements of a 16-byte vector, or 1 where rows do not allow vectors."""
    size = dense.itemsize
    wide = _VECTOR_BYTES // size
    rows = dense.strides[-1] == blocks.strides[-1] == size and bk % max(wide, 1) == 0
    if wide < 2 or not rows:
        return 1
    return wide if aligned(dense, _VECTOR_BYTES) and aligned(blocks, _VECTOR_BYTES) else 1


def transpose_blocks(out_blocks: Any, blocks: Any, order: Any) -> None:
    """Write ``out[t] = blocks[order[t]].T``."""
    xp, given = namespace(blocks), (out_blocks, blocks, order)
    bm, bk = blocks.shape[-2:]
    blocks, order = xp.ascontiguousarray(blocks), xp.ascontiguousarray(order, dtype=np.int64)
    with contiguous_output(out_blocks) as out:
        vector = _VECTOR_BYTES // blocks.itemsize
        at_vectors = (blocks.data.ptr | out.data.ptr) % _VECTOR_BYTES == 0
        wide = at_vectors and bm % vector == bk % vector == 0
        side = vector if wide else _TRANSPOSE_SIDE
        per_item = THREADS if wide else max(1, side * side // (min(bm, side) * min(bk, side)))
        tiles = len(out_blocks) * ceil_div(bm, side) * ceil_div(bk, side)
        items = ceil_div(tiles, per_item)
        launch = Launch(
            kernel("bsr_transpose_blocks", T=ctype(blocks.dtype), WIDE=int(wide)),
            grid(items),
            (THREADS,),
            (
                *map(address, (out, blocks, order)),
                np.int64(tiles),
                np.int64(items),
                np.int32(per_item),
                np.int32(bm),
                np.int32(bk),
            ),
        )
        submit(launch, whole=all(map(same_place, (out, blocks, order), given)))


def sum_blocks(out_blocks: Any, blocks: Any, order: Any, starts: Any) -> None:
    """Write ``out[c]``, the sum of ``blocks[order[starts[c]:starts[c + 1]]]`` (bool: or)."""
    xp, given = namespace(blocks), (out_blocks, blocks, order, starts)
    area = blocks.shape[-2] * blocks.shape[-1]
    per_item = max(1, _ELEMENTS // area)
    items = ceil_div(len(out_blocks), per_item)
    order, starts = (xp.ascontiguousarray(a, dtype=np.int64) for a in (order, starts))
    blocks = xp.ascontiguousarray(blocks)
    with contiguous_output(out_blocks) as out:
        launch = Launch(
            kernel("bsr_sum_blocks", T=ctype(blocks.dtype)),
            grid(items),
            (THREADS,),
            (
                *map(address, (out, blocks, order, starts)),
                np.int64(len(out_blocks)),
                np.int64(items),
                np.int32(per_item),
                np.int32(area),
            ),
        )
        submit(launch, whole=all(map(same_place, (out, blocks, order, starts), given)))


def _tiling(
    dense: Any, blocksize: tuple[int, int], block_columns: int, wide: int = 1
) -> tuple[int, int, tuple[int, int], bool]:
    """Return how a dense matrix is cut: block columns a tile, tiles a block row, threads, swapped.

    Consecutive threads go along the direction of the smaller stride: along a row, or down a
    column (``swapped``). Each takes ``wide`` elements of a row at a time.
    """
    bm, bk = blocksize
    per_tile = min(max(1, _TILE_COLUMNS * wide // bk), _MOST_COLUMNS, block_columns)
    swapped = abs(dense.strides[-2]) < abs(dense.strides[-1])
    along = bm if swapped else per_tile * bk // wide
    fast = min(THREADS, power_of_two_from(along))
    return per_tile, ceil_div(block_columns, per_tile), (fast, THREADS // fast), swapped
