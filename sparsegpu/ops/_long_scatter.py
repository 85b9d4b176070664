"""`_long_sums` for index lists: scattered int8 products whose sums do not fit int32."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._arrays import namespace
from .._epilogue import Epilogue, apply_epilogue
from .._math import ceil_div
from .._segments import expand_counts
from ._long_sums import MOST, Cut, added, cut_groups

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


class CutTiles(NamedTuple):
    """Strided lists whose tiles with many terms were cut.

    Attributes
    ----------
    cut : Cut
        The terms of the tiles.
    r_offsets, p_offsets, q_offsets : int64 arrays
        Of the pieces' tiles, side by side in a matrix of partial sums, and of the terms.
    rows, columns : int64 arrays (tiles, Ms, 1) and (tiles, 1, Ns)
        Row and column of every element of the tiles.
    """

    cut: Cut
    r_offsets: Any
    p_offsets: Any
    q_offsets: Any
    rows: Any
    columns: Any


def cut_pairs(c_offsets: Any, ks: int) -> Cut:
    """Cut the groups of the "scatter_mm" format, of blocks with ``ks`` columns."""
    return cut_groups(c_offsets, max(MOST // ks, 1), namespace(c_offsets))


def add_pairs(
    engine: Any, accumulators: Any, blocks: Any, others: Any, cut: Cut, pq: Any, **how: Any
) -> None:
    """Add ``blocks[p] @ others[q]`` to the accumulators of the groups that were cut.

    ``how`` are the engine's keywords, here and in `add_tiles`.
    """
    xp = namespace(blocks)
    sums = xp.zeros(accumulators.shape, _INT64)
    for k in range(0, blocks.shape[2], MOST):  # only a block of more columns has two slices
        parts = xp.zeros((cut.pieces, *accumulators.shape[1:]), _INT32)
        inner = slice(k, k + MOST)
        engine.scatter_mm(parts, blocks[:, :, inner], others[:, inner], cut.ends, pq, **how)
        sums += added(parts, cut)
    apply_epilogue(sums, Epilogue(1, 1, accumulators), accumulators)


def cut_tiles(arrays: dict[str, Any], block_shape: tuple[int, int], n: int, split: int) -> CutTiles:
    """Cut the tiles of either strided format, in matrices of ``n`` columns."""
    (ms, ks), ns, r_offsets = block_shape, n // split, arrays["r_offsets"]
    xp = namespace(r_offsets)
    row, column = r_offsets // n, r_offsets % n
    starts, p_offsets, q_offsets = _terms(arrays, row // ms, column // ns, split, xp)
    cut = cut_groups(starts, max(MOST // ks, 1), xp)
    piece = xp.arange(cut.pieces, dtype=_INT64)
    return CutTiles(
        cut,
        piece // split * (ms * n) + piece % split * ns,
        p_offsets,
        q_offsets,
        row[:, None, None] + xp.arange(ms, dtype=_INT64)[:, None],
        column[:, None, None] + xp.arange(ns, dtype=_INT64),
    )


def _terms(
    arrays: dict[str, Any], block_row: Any, column_split: Any, split: int, xp: Any
) -> tuple[Any, Any, Any]:
    """Return ``c_indices``, ``p_offsets`` and ``q_offsets`` of "bsr_strided_mm"."""
    c_indices, q_offsets = arrays["c_indices"], arrays["q_offsets"]
    if "p_offsets" in arrays:
        return c_indices, arrays["p_offsets"], q_offsets
    c0, c1 = c_indices[block_row], c_indices[block_row + 1]
    tile, i = expand_counts(c1 - c0)
    first = column_split * c1 + (split - column_split) * c0
    starts = xp.concatenate([xp.zeros((1,), _INT64), xp.cumsum(c1 - c0)])
    return starts, c0[tile] + i, q_offsets[first[tile] + i]


def add_tiles(
    engine: Any,
    accumulators: Any,
    blocks: Any,
    others: Any,
    tiles: CutTiles,
    split: int,
    **how: Any,
) -> None:
    """Add the sums of the tiles that were cut; no two of the tiles overlap."""
    xp, cut = namespace(blocks), tiles.cut
    *batch, _, n = accumulators.shape
    ms, ns = blocks.shape[1], n // split
    strips = ceil_div(cut.pieces, split)
    current = accumulators[..., tiles.rows, tiles.columns]
    sums = xp.zeros(current.shape, _INT64)
    for k in range(0, blocks.shape[2], MOST):
        parts = xp.zeros((*batch, strips * ms, n), _INT32)
        lists = cut.ends, tiles.r_offsets, tiles.p_offsets, tiles.q_offsets + k * n
        engine.bsr_strided_mm(parts, blocks[:, :, k : k + MOST], others, *lists, split, **how)
        parts = parts.reshape(*batch, strips, ms, split, ns).swapaxes(-3, -2)
        sums += added(parts.reshape(*batch, strips * split, ms, ns), cut)
    apply_epilogue(sums, Epilogue(1, 1, current), current)
    accumulators[..., tiles.rows, tiles.columns] = current
