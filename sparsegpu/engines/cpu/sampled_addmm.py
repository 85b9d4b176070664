"""Dense @ dense, computed at the stored blocks only: dot products of rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ..._epilogue import Epilogue, apply_epilogue
from ..._math import ceil_div
from ...pattern import Pattern
from ._jit import frozen
from ._kernels import dot_blocks
from ._operands import parts, real_accumulator, real_columns, real_pairs
from ._threads import for_each, pieces

#: Bytes of an operand that are copied at a time.
_WIDENED = 1 << 25


def sampled_addmm(
    out_data: np.ndarray,
    pattern: Pattern,
    input_data: np.ndarray | None,
    mat1: np.ndarray,
    mat2: np.ndarray,
    alpha: Any,
    beta: Any,
    *,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``beta * input_data + alpha * (mat1 @ mat2)[stored blocks]``.

    mat1 is (*B, M, K), mat2 (*B, K, N); ``input_data`` is None when beta is 0.
    ``allow_tf32`` and ``config`` have no effect on the host.
    """
    batch, k = out_data.shape[:-3], mat1.shape[-1]
    indices = np.broadcast_to(pattern._indices, batch + pattern._indices.shape[-1:])
    rows = np.broadcast_to(pattern._rows, indices.shape)
    mat1 = np.broadcast_to(mat1, batch + mat1.shape[-2:])
    mat2 = np.broadcast_to(mat2, batch + mat2.shape[-2:])
    if input_data is not None:
        input_data = np.broadcast_to(input_data, out_data.shape)
    # Both operands are read along the depth: panels are copied so that it is contiguous.
    panel = max(_WIDENED // (16 * parts(mat1.dtype) * max(*pattern.shape, 1)), 64)

    def one_matrix(b: tuple[int, ...]) -> None:
        acc = np.zeros(out_data.shape[-3:], accumulator_dtype(mat1.dtype))
        for start in range(0, k if alpha != 0 else 0, panel):
            depth = slice(start, start + panel)
            add_dots(acc, rows[b], indices[b], mat1[b][:, depth], mat2[b][depth])
        part = None if input_data is None else input_data[b]
        apply_epilogue(acc, Epilogue(alpha, beta, part), out_data[b])

    for_each(one_matrix, np.ndindex(batch), out_data.size * k)


def add_dots(
    acc: np.ndarray, rows: np.ndarray, columns: np.ndarray, mat1: np.ndarray, mat2: np.ndarray
) -> None:
    """Add to block p of ``acc`` block (rows[p], columns[p]) of ``mat1 @ mat2``."""
    (count, bm, bn), real = acc.shape, parts(acc.dtype)
    left, left_ld = real_pairs(mat1)
    right, right_ld = real_columns(mat2)
    depth = mat1.shape[1] * real

    def some_blocks(stored: slice) -> None:
        dot_blocks(
            real_accumulator(acc[stored]),
            frozen(rows[stored]),
            frozen(columns[stored]),
            bm,
            bn * real,
            left,
            left_ld,
            right,
            right_ld,
            depth,
        )

    cost = acc.size * mat1.shape[1]
    size = max(ceil_div(count, pieces(cost)), 1)
    for_each(some_blocks, (slice(p, p + size) for p in range(0, count, size)), cost)
