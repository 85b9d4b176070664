"""Choosing what a 2:4 matrix keeps, on the device: a thread takes a group or a 4 x 4 tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._math import ceil_div
from ._grid import same_place
from ._host_numbers import HostNumbers
from .compress import aligned, contiguous_target, copy_back
from .runtime.launch import NULL, Launch, address, kernel, submit
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view

_THREADS = 256
#: Rows and columns of elements that a block takes.
_TILE_BLOCK, _PRUNE_BLOCK = (64, 128), (32, 256)
#: 16-byte vectors that a thread of prune_24 loads from contiguous memory.
_VECTORS = 4

#: ``enum Rule`` of common/selection.cuh.
_RULES = {
    "largest_abs_values_greedy": "largest_abs_values",
    "largest_values_greedy": "largest_values",
    "": "largest_values",
    "causal1122": "causal1122",
}
_GIVEN_MASK = "given_mask"


def prune_24(out: Any, dense: Any, keep: str, importance: Any = None) -> None:
    """Keep the two most important of each four in a row (``keep="1:2"``: one of each two).

    ``importance`` is float32 or float64 of dense's shape, None for the absolute value. A ragged
    end of a row stays as it is.
    """
    group = 2 if keep == "1:2" else 4
    *batch, rows, columns = dense.shape
    batch = tuple(batch)
    vector = max(16 // dense.itemsize, group)
    flat = (
        columns % group == 0
        and dense.size % vector == 0
        and all(
            a is None or (a.flags.c_contiguous and a.data.ptr % 16 == 0)
            for a in (out, dense, importance)
        )
    )
    defines: dict[str, Any] = {"T": value_type(dense.dtype), "GROUP": group, "FLAT": int(flat)}
    if importance is not None:
        defines["IMPORTANCE"] = ctype(importance.dtype)
    total = dense.size // vector if flat else dense.size // columns * ceil_div(columns, group)
    launch = Launch(
        kernel("prune_24", **defines),
        (ceil_div(total, _THREADS * _VECTORS if flat else _THREADS),),
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
    submit(launch, whole=True)


def prune_tile(out: Any, dense: Any, algorithm: str) -> None:
    """Visit the 16 values of each 4 x 4 tile in order; keep one while its row and column allow.

    Rows and columns past the last multiple of 4 stay as they are.
    """
    _by_tiles(out, dense, None, _RULES[algorithm])


def apply_dense(out: Any, dense: Any, bitmask: Any) -> None:
    """Write ``dense`` where the mask is set, zero (also for a NaN) elsewhere."""
    _by_tiles(out, dense, bitmask, _GIVEN_MASK)


def _by_tiles(out: Any, dense: Any, bitmask: Any, rule: str) -> None:
    mask = None if bitmask is None else aligned(bitmask)  # a copy has to outlive the launch
    *batch, rows, columns = dense.shape
    batch = tuple(batch)
    high, wide = _PRUNE_BLOCK
    blocks = dense.size // (rows * columns) * ceil_div(rows, high) * ceil_div(columns, wide)
    launch = Launch(
        kernel("prune_tile", T=value_type(dense.dtype), RULE=rule),
        (blocks,),
        (_THREADS,),
        (
            matrix_view(out, batch),
            matrix_view(dense, batch),
            NULL if mask is None else address(mask),
            batch_dims(batch),
            np.int64(rows),
            np.int64(columns),
        ),
    )
    submit(launch, whole=mask is None or same_place(mask, bitmask))


def bitmask(out: Any, pruned: Any) -> None:
    """Write the nonzero flags of a pruned matrix, (rows/8, cols/8, 8) bytes."""
    rows, columns = pruned.shape
    target = contiguous_target(out)
    launch = Launch(
        kernel("semi_structured_bitmask", T=value_type(pruned.dtype)),
        (ceil_div(rows * columns // 16, _THREADS),),
        (_THREADS,),
        (address(target), matrix_view(pruned, ()), np.int64(rows), np.int64(columns)),
    )
    submit(launch, whole=same_place(target, out))
    copy_back(out, target)


def tile(
    packed: Any, meta: Any, packed_t: Any, meta_t: Any, bitmask: Any, dense: Any, algorithm: str
) -> None:
    """Prune by tiles, compress the matrix and its transpose, and keep the bitmask: one pass."""
    mask = contiguous_target(bitmask)
    halves = packed, meta, packed_t, meta_t
    _both_ways(halves, mask, dense, _RULES[algorithm], whole=same_place(mask, bitmask))
    copy_back(bitmask, mask)


def apply(
    packed: Any, meta: Any, packed_t: Any, meta_t: Any, dense: Any, bitmask: Any, strict: bool
) -> bool:
    """Compress what a bitmask keeps of ``dense``, and the transpose of it, in one pass.

    Whatever the mask keeps beyond two of four is dropped by compress's rule.

    Returns
    -------
    bool
        With ``strict``, whether nothing was dropped; only then this waits for the device.
    """
    flag, mask = HostNumbers() if strict else None, aligned(bitmask)
    halves = packed, meta, packed_t, meta_t
    _both_ways(halves, mask, dense, _GIVEN_MASK, flag, whole=same_place(mask, bitmask))
    return flag is None or not any(flag.wait())


def _both_ways(
    halves: tuple,
    mask: Any,
    dense: Any,
    rule: str,
    dropped: HostNumbers | None = None,
    *,
    whole: bool,
) -> None:
    rows, columns = dense.shape
    high, wide = _TILE_BLOCK
    targets = [contiguous_target(half) for half in halves]
    launch = Launch(
        kernel("semi_structured_tile", T=value_type(dense.dtype), RULE=rule),
        (ceil_div(rows, high) * ceil_div(columns, wide),),
        (_THREADS,),
        (
            *map(address, (*targets, mask)),
            matrix_view(dense, ()),
            np.int64(rows),
            np.int64(columns),
            NULL if dropped is None else dropped.pointer,
        ),
    )
    whole = whole and all(map(same_place, targets, halves))
    submit(*([] if dropped is None else [dropped]), launch, whole=whole)
    for half, target in zip(halves, targets, strict=True):
        copy_back(half, target)


def value_type(dtype: np.dtype) -> str:
    """Return the kernels' name of a 2:4 operand's dtype: uint8 carries float8_e4m3fn."""
    return "e4m3" if dtype == np.uint8 else ctype(dtype)
