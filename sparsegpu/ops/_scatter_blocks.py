"""A whole product in the "scatter_mm" format: dense matrices as stacks of blocks, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._checks import bad_value
from ..pattern import Pattern
from .scatter_indices import IndicesData


def split_of(function: str, indices_data: tuple, other: Any, rows: int) -> int:
    """Return SPLIT_N, which this format does not hold: tiles are (batch, row, split)."""
    if isinstance(indices_data, IndicesData):
        return indices_data.fit.split_n
    tiles = len(indices_data[1]) - 1
    outer = int(np.prod(other.shape[:-2], dtype=np.int64)) * rows
    n = other.shape[-1]
    if outer == 0 and tiles == 0:
        return 1
    if tiles == 0 or outer == 0 or tiles % outer or n % (tiles // outer):
        expected = f"a multiple of {outer} tiles (batch * rows with blocks), dividing N = {n}"
        raise bad_value(function, "indices_data", expected, f"{tiles} tiles")
    return tiles // outer


def column_blocks(other: Any, ks: int, split: int, xp: Any) -> Any:
    """Return ``other`` as blocks, q = (b * (K // Ks) + k) * SPLIT_N + n."""
    k, n = other.shape[-2:]
    size = int(np.prod(other.shape[:-2], dtype=np.int64))
    cut = other.reshape(size, k // ks, ks, split, n // split).swapaxes(2, 3)
    return xp.ascontiguousarray(cut).reshape(size * (k // ks) * split, ks, n // split)


def rows_with_blocks(pattern: Pattern) -> Any:
    """Return the block rows that have blocks, int64, ascending; kept with the pattern."""
    xp = pattern.xp
    return pattern.memo("rows with blocks", lambda: xp.flatnonzero(xp.diff(pattern._indptr)))


def place_tiles(result: Any, tiles: Any, pattern: Pattern, rows: Any, split: int, xp: Any) -> None:
    """Write tiles in order (batch, row, split) where they belong, zeros elsewhere."""
    (m, _), (ms, _), n = pattern.shape, pattern.blocksize, result.shape[-1]
    size = int(np.prod(result.shape[:-2], dtype=np.int64))
    whole = xp.zeros((size, m // ms, ms, split, n // split), result.dtype)
    placed = tiles.reshape(size, rows.size, split, ms, n // split).swapaxes(2, 3)
    whole[:, rows] = placed
    result[...] = whole.reshape(result.shape)
