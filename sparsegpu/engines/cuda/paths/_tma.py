"""Matrices as tensor maps: how the Hopper products read and write them by TMA.

A batch is one dimension of a tensor map, so operands whose batches need more are left to the other
kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ..runtime.tensor_map import tensor_map

#: TMA coordinates and numbers of tiles are below this.
INT32 = 2**31
#: For an argument that the kernel does not read.
NO_MAP = bytes(128)


@dataclass(frozen=True, slots=True)
class Batch:
    """The one batch dimension of the kernel, and the operands' strides along it."""

    count: int
    dense: int
    out: int


def one_batch(shape: tuple[int, ...], matrices: int, dense: Any, out: Any) -> Batch | None:
    """Return the batch as one dimension, or None where it cannot be one.

    Parameters
    ----------
    shape : tuple of int
        Of the result's batch.
    matrices : int
        Of the sparse operand: 1, or as many as the result.
    dense, out : array
    """
    kept = [d for d, n in enumerate(shape) if n != 1]
    if not kept:
        return Batch(1, 0, 0)
    if len(kept) > 1:
        # Contiguous operands of any rank are one dimension, too.
        count = prod(shape)
        if not _flat(dense, shape) or not _flat(out, shape):
            return None
        batch = Batch(count, dense.strides[-3], out.strides[-3])
    else:
        behind = kept[0] - len(shape)
        batch = Batch(shape[kept[0]], _stride(dense, behind), _stride(out, behind))
    fits = matrices in {1, batch.count} and batch.dense >= 0 and batch.out >= 0
    return batch if fits else None


def _flat(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether one stride covers all batch dimensions of an array that has them all."""
    if array.shape[:-2] != shape:
        return False
    step = array.strides[-3]
    for n, stride in zip(reversed(shape), reversed(array.strides[:-2]), strict=True):
        if stride != step:
            return False
        step *= n
    return True


def _stride(array: Any, behind: int) -> int:
    """Return the stride in bytes of batch dimension ``behind`` (from the end; 0: broadcast)."""
    if array.ndim - 2 < -behind or array.shape[behind - 2] == 1:
        return 0
    return array.strides[behind - 2]


def store_mode(out: Any, batch: Batch) -> str:
    """Return how the epilogue stores the output.

    "rows" and "columns": boxes by TMA; "unaligned": rows that TMA cannot store, in 16-byte vectors;
    "elementwise": single elements.
    """
    row, col = out.strides[-2:]
    if out.data.ptr % 16 == batch.out % 16 == 0:
        if col == out.itemsize and row % 16 == 0 and row >= 0:
            return "rows"
        if row == out.itemsize and col % 16 == 0 and col >= 0:
            return "columns"
    return "unaligned" if col == out.itemsize and out.itemsize in {2, 4} else "elementwise"


def dense_maps(
    dense: Any, layout: str, batch: Batch, tile_n: int, step_k: int
) -> tuple[bytes, bytes]:
    """Return the map of full boxes of ``dense``, and that of the box at its ragged edge."""
    k, n = dense.shape[-2:]
    row, col = dense.strides[-2:]
    size = dense.itemsize
    batches, apart = (batch.count, batch.dense) if batch.dense else (1, 16)
    if layout == "columns":
        whole = tensor_map(
            dense,
            (1, tile_n, step_k),
            step_k * size,
            shape=(batches, n, k),
            strides=(apart, col if n > 1 else 16, size),
        )
        return whole, whole
    wide = step_k if size == 1 else 64  # columns of a box; of int8, squares to be transposed
    edge = tensor_map(
        dense,
        (1, step_k, wide),
        wide * size,
        shape=(batches, k, n),
        strides=(apart, row, size),
    )
    if n < wide:
        return edge, edge
    whole = tensor_map(
        dense,
        (1, tile_n // wide, step_k, wide),
        wide * size,
        shape=(batches, n // wide, k, wide),
        strides=(apart, wide * size, row, size),
    )
    return whole, edge


def codes_map(meta: Any, rows: int, box: tuple[int, int]) -> bytes:
    """Return the map of metadata in CUTLASS's order: pairs of columns, one after the other.

    Parameters
    ----------
    meta : array
        Of one matrix, or of blocks one after the other.
    rows : int
        Of the matrix or a block.
    box : (pairs, rows)
    """
    size = meta.itemsize
    return tensor_map(
        meta,
        (box[0], 2 * box[1]),
        shape=(meta.size // (2 * rows), 2 * rows),
        strides=(2 * rows * size, size),
    )


def out_map(out: Any, batch: Batch, store: str) -> bytes:
    """Return the map of a warp's store buffer: sixteen rows, 128 bytes of each if by row.

    `NO_MAP` where threads write.
    """
    if store not in {"rows", "columns"}:
        return NO_MAP
    m, n = out.shape[-2:]
    row, col = out.strides[-2:]
    size = out.itemsize
    batches, apart = (batch.count, batch.out) if batch.out else (1, 16)
    if store == "rows":
        box, shape, strides, swizzle = (1, 16, 128 // size), (m, n), (row, size), 128
    else:
        box, shape, strides, swizzle = (1, 128 // size, 16), (n, m), (col, size), 0
    return tensor_map(out, box, swizzle, shape=(batches, *shape), strides=(apart, *strides))
