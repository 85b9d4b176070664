"""BSR @ dense, a tile of the result at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ..._epilogue import Epilogue, apply_epilogue
from ...pattern import Pattern
from ._jit import frozen
from ._kernels import multiply, multiply_narrow
from ._operands import (
    NO_TERMS,
    compute_dtype,
    is_wide,
    own_rows,
    own_strip,
    parts,
    real_blocks,
    real_columns,
    real_rows,
    real_strip,
    widen,
)
from ._small_blocks import small_loop
from ._threads import for_each, pieces, spans
from .convert import transpose_blocks

#: Elements of an accumulator (so a few stay in the last-level cache) and columns of a tile.
ACCUMULATOR, COLUMNS = 1 << 18, 1024
#: Bytes of the dense operand or of blocks that are widened at a time.
_WIDENED = 1 << 25


def bsr_addmm(
    out: np.ndarray,
    pattern: Pattern,
    data: np.ndarray,
    dense: np.ndarray,
    epilogue: Epilogue,
    *,
    transposed: bool = False,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (bsr @ dense)) * right_alpha)``.

    ``transposed``: of the transpose of (pattern, data), whose blocks are read in place for one
    column, and else transposed a window at a time. ``allow_tf32`` and ``config`` have no effect.
    """
    del allow_tf32, config
    batch = out.shape[:-2]
    order = None
    if transposed:
        pattern, flat_order = pattern.transposed()
        order = (flat_order % max(pattern.nnzb, 1)).reshape(pattern._indices.shape)
    indptr, indices = pattern._indptr, pattern._indices
    part = EpilogueParts(epilogue, out.shape)
    if not batch:
        _product(out, indptr, indices, order, data, dense, part, ())
        return
    dense = np.broadcast_to(dense, batch + dense.shape[-2:])
    indptr = np.broadcast_to(indptr, batch + indptr.shape[-1:])
    indices = np.broadcast_to(indices, batch + indices.shape[-1:])
    data = np.broadcast_to(data, batch + data.shape[-3:])
    if order is not None:
        order = np.broadcast_to(order, batch + order.shape[-1:])

    def one_matrix(b: tuple[int, ...]) -> None:
        place = None if order is None else order[b]
        _product(out[b], indptr[b], indices[b], place, data[b], dense[b], part, b)

    for_each(one_matrix, np.ndindex(batch), data.size * out.shape[-1])


class EpilogueParts:
    """Views of an epilogue's operands for a window of ``out``; nothing is copied."""

    def __init__(self, epilogue: Epilogue, shape: tuple[int, ...]):
        e = self.whole = epilogue
        left, right = (*shape[:-2], shape[-2]), (*shape[:-2], shape[-1])
        self.input = None if e.input is None else np.broadcast_to(e.input, shape)
        self.left = None if e.left_alpha is None else np.broadcast_to(e.left_alpha, left)
        self.right = None if e.right_alpha is None else np.broadcast_to(e.right_alpha, right)

    def at(self, b: tuple[int, ...], rows: slice, columns: slice) -> Epilogue:
        """Return the epilogue of ``out[b][rows, columns]``."""
        return replace(
            self.whole,
            input=None if self.input is None else self.input[b][rows, columns],
            left_alpha=None if self.left is None else self.left[b][rows],
            right_alpha=None if self.right is None else self.right[b][columns],
        )


def _product(
    out: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    order: np.ndarray | None,
    data: np.ndarray,
    dense: np.ndarray,
    part: EpilogueParts,
    b: tuple[int, ...],
) -> None:
    """Compute one matrix of the batch; block p is ``data[p]``, or ``data[order[p]]``."""
    (bm, bk), (k, n), real = data.shape[1:], dense.shape, parts(data.dtype)
    if order is not None:
        bm, bk = bk, bm
    acc_dtype = accumulator_dtype(data.dtype)
    narrow = is_narrow(n * real, bk * real)
    small = small_loop(n, bm, bk, acc_dtype, order is not None)
    loop = multiply_narrow if narrow else multiply
    wide_row = k * real * real * compute_dtype(data.dtype).itemsize
    panel = max(_WIDENED // max(wide_row, 1) // COLUMNS, 1) * COLUMNS

    row_step, column_step = out.strides
    if n == 1:
        column_step = out.itemsize
    in_place = (
        part.whole.is_identity
        and out.dtype == acc_dtype
        and column_step == out.itemsize
        and row_step >= n * column_step
        and row_step % column_step == 0
    )

    def tile(window: tuple[int, int, int, int]) -> None:
        first, last, left, right = window
        p0, p1 = int(indptr[first]), int(indptr[last])
        window_rows, columns = slice(first * bm, last * bm), slice(left, right)
        result = out[window_rows, columns]
        if in_place:
            acc = result
            acc[...] = 0
        else:
            acc = np.zeros(result.shape, acc_dtype)
        if p1 > p0 and part.whole.alpha != 0:
            flat, acc_ld = own_strip(acc) if small else real_strip(acc)
            ends = frozen(indptr[first : last + 1].astype(np.int64) - p0)
            source = frozen(indices[p0:p1])
            if small:
                blocks, listed = _listed(data, order, p0, p1)
                targets = flat, acc_ld, ends[:-1], ends[1:], listed, source
                operands = frozen(widen(blocks)), order is not None, rows[left - start :], ld
                small(*targets, *operands, right - left)
            else:
                blocks = data[p0:p1] if order is None else _transposed(data, order[p0:p1])
                loop(
                    flat,
                    frozen(np.arange(last - first) * (bm * acc_ld)),
                    acc_ld,
                    ends[:-1],
                    ends[1:],
                    NO_TERMS,
                    source,
                    real * bk * (1 if narrow else ld),
                    0 if narrow else (left - start) * real,
                    ld,
                    real_blocks(blocks),
                    rows,
                    (right - left) * real,
                )
        if not in_place:
            apply_epilogue(acc, part.at(b, window_rows, columns), result)

    for start in range(0, n, panel):
        stop = min(start + panel, n)
        if small:
            rows, ld = own_rows(dense.T if n == 1 else dense[:, start:stop])
        else:
            rows, ld = (real_columns if narrow else real_rows)(dense[:, start:stop])
        columns = [(c, min(c + COLUMNS, stop)) for c in range(start, stop, COLUMNS)]
        most = max(ACCUMULATOR // (bm * min(n, COLUMNS)), 1)
        cost = data.size * (stop - start)
        row_spans = spans(indptr[1:], most, max(pieces(cost), data.nbytes // _WIDENED))
        for_each(tile, [(*r, *c) for c in columns for r in row_spans], cost)


def _listed(
    data: np.ndarray, order: np.ndarray | None, p0: int, p1: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return blocks and the list of those that p0..p1 are: uncopied where nothing is widened."""
    if order is None:
        return data[p0:p1], NO_TERMS
    if data.flags.c_contiguous and is_wide(data.dtype):
        return data, frozen(order[p0:p1])
    return data[order[p0:p1]], NO_TERMS


def _transposed(blocks: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the transposes of the blocks that are listed."""
    n, (bm, bk) = len(order), blocks.shape[1:]
    out = np.empty((n, bk, bm), blocks.dtype)
    transpose_blocks(out, blocks, order)
    return out


def is_narrow(columns: int, depth: int) -> bool:
    """Whether dot products along a block's rows beat running along ``columns`` (measured)."""
    return columns <= max(1, min(depth // 2, 16))
