"""Dense to blocks and back, and blocks among themselves.

A dense matrix seen as blocks has shape ``(*batch, M/bm, K/bk, bm, bk)`` (`as_blocks`); with
that view every conversion is one indexing expression.
"""

from __future__ import annotations

import numpy as np

from ..._arrays import accumulator_dtype
from ...pattern import Pattern


def as_blocks(dense: np.ndarray, blocksize: tuple[int, int]) -> np.ndarray:
    """Return the view ``(*batch, M/bm, K/bk, bm, bk)`` of a dense matrix (any strides)."""
    bm, bk = blocksize
    *batch, m, k = dense.shape
    return dense.reshape(*batch, m // bm, bm, k // bk, bk).swapaxes(-3, -2)


def block_mask(dense: np.ndarray, blocksize: tuple[int, int]) -> np.ndarray:
    """Return which blocks hold a nonzero, ``(*batch, M/bm, K/bk)``.

    NaN is not zero, -0.0 is.
    """
    return (as_blocks(dense, blocksize) != 0).any(axis=(-2, -1))


def gather_blocks(out_data: np.ndarray, pattern: Pattern, dense: np.ndarray) -> None:
    """Write the stored blocks of a dense matrix."""
    batch = out_data.shape[:-3]
    rows, columns = _positions(pattern, batch)
    blocks = as_blocks(np.broadcast_to(dense, batch + dense.shape[-2:]), pattern.blocksize)
    for b in np.ndindex(batch):
        out_data[b] = blocks[b][rows[b], columns[b]]


def scatter_blocks(out_dense: np.ndarray, pattern: Pattern, data: np.ndarray) -> None:
    """Write the whole dense matrix: zeros between the blocks, duplicates summed (bool: or)."""
    batch = out_dense.shape[:-2]
    rows, columns = _positions(pattern, batch)
    data = np.broadcast_to(data, batch + data.shape[-3:])
    for b in np.ndindex(batch):
        blocks = np.zeros(pattern.block_shape + pattern.blocksize, accumulator_dtype(data.dtype))
        blocks[rows[b], columns[b]] = _start_of_sum(blocks.dtype)
        _add_at(blocks, (rows[b], columns[b]), data[b])
        as_blocks(out_dense[b], pattern.blocksize)[...] = narrow(blocks, out_dense.dtype)


def transpose_blocks(out_blocks: np.ndarray, blocks: np.ndarray, order: np.ndarray) -> None:
    """Write ``out[t] = blocks[order[t]].T``."""
    out_blocks[...] = blocks[order].swapaxes(-1, -2)


def transpose_pattern(pattern: Pattern) -> tuple[Pattern, np.ndarray]:
    """Return the pattern of the transpose and where its blocks come from; kept with the pattern."""
    return pattern.transposed()


def column_order(pattern: Pattern) -> tuple[bool, bool]:
    """Return whether columns ascend in every row, and whether they do so strictly."""
    return pattern.has_sorted_indices, pattern.has_canonical_format


def sum_blocks(
    out_blocks: np.ndarray, blocks: np.ndarray, order: np.ndarray, starts: np.ndarray
) -> None:
    """Write ``out[c]``, the sum of ``blocks[order[starts[c]:starts[c + 1]]]`` (bool: or).

    Summed in accumulator precision, in that order, and rounded once; int8 saturates.
    """
    dtype = accumulator_dtype(blocks.dtype)
    total = np.full(out_blocks.shape, _start_of_sum(dtype), dtype)
    meets_in = np.repeat(np.arange(len(out_blocks)), np.diff(starts))
    _add_at(total, meets_in, blocks[order])
    out_blocks[...] = narrow(total, out_blocks.dtype)


def narrow(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a sum in the dtype it is stored in: rounded once, int8 saturating."""
    if dtype == np.int8:
        value = np.clip(value, -128, 127)
    with np.errstate(all="ignore"):
        return value.astype(dtype)


def _start_of_sum(dtype: np.dtype) -> np.ndarray:
    """Return -0.0, to which a sum adds all without a trace, -0.0 too (0.0 + -0.0 is 0.0)."""
    zero = np.zeros((), dtype)
    return -zero if dtype.kind in "fc" else zero


def _add_at(total: np.ndarray, index: np.ndarray | tuple, blocks: np.ndarray) -> None:
    """Add blocks at ``index``, in order; indices may repeat."""
    add = np.logical_or if total.dtype == bool else np.add
    with np.errstate(all="ignore"):
        add.at(total, index, blocks.astype(total.dtype))


def _positions(pattern: Pattern, batch: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return block rows and block columns, broadcast to the batch shape ``batch``."""
    shape = (*batch, pattern.nnzb)
    return np.broadcast_to(pattern._rows, shape), np.broadcast_to(pattern._indices, shape)
