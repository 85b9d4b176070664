"""Choosing what a 2:4 matrix keeps, on the device: a thread takes a group or a 4 x 4 tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compress import contiguous_target, copy_back
from .runtime.launch import kernel
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view

_THREADS = 256
#: Elements on a side of the square that a block of semi_structured_tile takes.
_SIDE = 64

#: ``enum Rule`` of common/selection.cuh.
_RULES = {
    "largest_abs_values_greedy": "largest_abs_values",
    "largest_values_greedy": "largest_values",
    "": "largest_values",
    "causal1122": "causal1122",
}
_GIVEN_MASK = "given_mask"
_ABSENT = np.uint64(0)


def prune_24(out: Any, dense: Any, keep: str, importance: Any = None) -> None:
    """Keep the two most important of each four in a row (``keep="1:2"``: one of each two).

    ``importance`` is float32 or float64 of dense's shape, None for the absolute value. A ragged
    end of a row stays as it is.
    """
    group = 2 if keep == "1:2" else 4
    *batch, rows, columns = dense.shape
    batch = tuple(batch)
    total = dense.size // columns * -(-columns // group)
    defines: dict[str, Any] = {"T": value_type(dense.dtype), "GROUP": group}
    if importance is not None:
        defines["IMPORTANCE"] = ctype(importance.dtype)
    kernel("prune_24", **defines)(
        (-(-total // _THREADS),),
        (_THREADS,),
        (
            matrix_view(out, batch),
            matrix_view(dense, batch),
            matrix_view(importance, batch),
            batch_dims(batch),
            np.int64(rows),
            np.int64(columns),
            np.int64(total),
        ),
    )


def prune_tile(out: Any, dense: Any, algorithm: str) -> None:
    """Visit the 16 values of each 4 x 4 tile in order; keep one while its row and column allow.

    Rows and columns past the last multiple of 4 stay as they are.
    """
    _by_tiles(out, dense, None, _RULES[algorithm])


def apply_dense(out: Any, dense: Any, bitmask: Any) -> None:
    """Write ``dense`` where the mask is set, zero (also for a NaN) elsewhere."""
    _by_tiles(out, dense, _contiguous(bitmask), _GIVEN_MASK)


def _by_tiles(out: Any, dense: Any, mask: Any, rule: str) -> None:
    *batch, rows, columns = dense.shape
    batch = tuple(batch)
    total = dense.size // (rows * columns) * -(-rows // 4) * -(-columns // 4)
    kernel("prune_tile", T=value_type(dense.dtype), RULE=rule)(
        (-(-total // _THREADS),),
        (_THREADS,),
        (
            matrix_view(out, batch),
            matrix_view(dense, batch),
            _ABSENT if mask is None else mask,
            batch_dims(batch),
            np.int64(rows),
            np.int64(columns),
            np.int64(total),
        ),
    )


def bitmask(out: Any, pruned: Any) -> None:
    """Write the nonzero flags of a pruned matrix, (rows/8, cols/8, 8) bytes."""
    rows, columns = pruned.shape
    target = contiguous_target(out)
    kernel("semi_structured_bitmask", T=value_type(pruned.dtype))(
        (-(-(rows * columns // 16) // _THREADS),),
        (_THREADS,),
        (target, matrix_view(pruned, ()), np.int64(rows), np.int64(columns)),
    )
    copy_back(out, target)


def tile(
    packed: Any, meta: Any, packed_t: Any, meta_t: Any, bitmask: Any, dense: Any, algorithm: str
) -> None:
    """Prune by tiles, compress the matrix and its transpose, and keep the bitmask: one pass."""
    mask = contiguous_target(bitmask)
    _both_ways((packed, meta, packed_t, meta_t), mask, dense, _RULES[algorithm])
    copy_back(bitmask, mask)


def apply(packed: Any, meta: Any, packed_t: Any, meta_t: Any, dense: Any, bitmask: Any) -> None:
    """Compress what a bitmask keeps of ``dense``, and the transpose of it, in one pass.

    Whatever the mask keeps beyond two of four is dropped by compress's rule.
    """
    _both_ways((packed, meta, packed_t, meta_t), _contiguous(bitmask), dense, _GIVEN_MASK)


def _both_ways(halves: tuple, mask: Any, dense: Any, rule: str) -> None:
    rows, columns = dense.shape
    targets = [contiguous_target(half) for half in halves]
    kernel("semi_structured_tile", T=value_type(dense.dtype), RULE=rule)(
        (-(-rows // _SIDE) * -(-columns // _SIDE),),
        (_THREADS,),
        (*targets, mask, matrix_view(dense, ()), np.int64(rows), np.int64(columns)),
    )
    for half, target in zip(halves, targets, strict=True):
        copy_back(half, target)


def value_type(dtype: np.dtype) -> str:
    """Return the kernels' name of a 2:4 operand's dtype: uint8 carries float8_e4m3fn."""
    return "e4m3" if dtype == np.uint8 else ctype(dtype)


def _contiguous(array: Any) -> Any:
    import cupy

    return cupy.ascontiguousarray(array)
