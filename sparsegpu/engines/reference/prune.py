"""Choosing what a 2:4 matrix keeps: row by row, tile by tile, or by a given bitmask.

The tile algorithms and the bitmask are those of PyTorch's
``_sparse_semi_structured_tile`` family, stated here by their rules alone.
"""

from __future__ import annotations

import numpy as np

from .._prune_both_sides import TwoSided
from .compress import compress, nonzero

#: How many values the rows 0..3 of a tile may keep; a column keeps at most two.
ROW_LIMITS = {
    "largest_abs_values_greedy": (2, 2, 2, 2),
    "largest_values_greedy": (2, 2, 2, 2),
    "": (2, 2, 2, 2),
    "causal1122": (1, 1, 2, 2),
}
COLUMN_LIMIT = 2


def descending(keys: np.ndarray) -> np.ndarray:
    """Return the order of the last axis: largest first, lower index on ties, NaN last."""
    return np.argsort(-keys, axis=-1, kind="stable")


def _exact(values: np.ndarray) -> np.ndarray:
    """Return values in a dtype where comparing, negating and ``abs`` are exact."""
    return values if values.dtype == np.float64 else values.astype(np.float32)


def prune_24(
    out: np.ndarray, dense: np.ndarray, keep: str, importance: np.ndarray | None = None
) -> None:
    """Keep the two most important of each four in a row (``keep="1:2"``: one of each two).

    ``dense`` and ``out`` are (m, k), ``importance`` is float32 or float64 of that shape, None
    for the absolute value. An incomplete last group stays as it is.
    """
    kept, group = (1, 2) if keep == "1:2" else (2, 4)
    m, k = dense.shape
    whole = k // group * group
    out[...] = dense
    groups = dense[:, :whole].reshape(m, -1, group)
    if importance is None:
        keys = np.abs(_exact(groups))
    else:
        keys = importance[:, :whole].reshape(groups.shape)
    chosen = np.zeros(groups.shape, dtype=bool)
    np.put_along_axis(chosen, descending(keys)[..., :kept], True, axis=-1)
    zero = np.zeros((), dtype=dense.dtype)
    out[:, :whole] = np.where(chosen, groups, zero).reshape(m, whole)


def to_tiles(matrix: np.ndarray, size: int) -> np.ndarray:
    """Return the (rows/size, cols/size, size, size) tiles of a matrix, as a view."""
    m, k = matrix.shape
    return matrix.reshape(m // size, size, k // size, size).swapaxes(1, 2)


def prune_tile(out: np.ndarray, dense: np.ndarray, algorithm: str) -> None:
    """Visit the 16 values of each 4 x 4 tile in order; keep those whose row and column have room.

    Rows and columns past the last multiple of 4 stay as they are.
    """
    m, k = (n // 4 * 4 for n in dense.shape)
    out[...] = dense
    tiles = to_tiles(dense[:m, :k], 4)
    values = tiles.reshape(-1, 16)
    keys = _exact(values)
    visits = descending(np.abs(keys) if algorithm == "largest_abs_values_greedy" else keys)
    row_room = np.tile(np.array(ROW_LIMITS[algorithm]), (len(values), 1))
    column_room = np.full((len(values), 4), COLUMN_LIMIT)
    chosen = np.zeros(values.shape, dtype=bool)
    tile = np.arange(len(values))
    for place in visits.T:
        row, column = place // 4, place % 4
        keeps = (row_room[tile, row] > 0) & (column_room[tile, column] > 0)
        chosen[tile, place] = keeps
        row_room[tile, row] -= keeps
        column_room[tile, column] -= keeps
    zero = np.zeros((), dtype=dense.dtype)
    pruned = np.where(chosen, values, zero).reshape(tiles.shape)
    out[:m, :k] = pruned.swapaxes(1, 2).reshape(m, k)


def bitmask(out: np.ndarray, pruned: np.ndarray) -> None:
    """Write the nonzero flags, (rows/8, cols/8, 8) bytes.

    The bytes of an 8 x 8 cell are its 4 x 4 tiles top-left, top-right, bottom-left,
    bottom-right, each as rows 0-1, then rows 2-3; bit ``4 * (row % 2) + column`` of a byte.
    """
    rows, cols = pruned.shape
    flags = nonzero(pruned).reshape(rows // 8, 2, 2, 2, cols // 8, 2, 4)
    # axes: cell row, tile row, pair of rows, row in the pair, cell column, tile column, column
    bits = flags.transpose(0, 4, 1, 5, 2, 3, 6).reshape(rows // 8, cols // 8, 8, 8)
    out[...] = np.packbits(bits, axis=-1, bitorder="little")[..., 0]


def mask_of(bits: np.ndarray) -> np.ndarray:
    """Return the bool matrix that a bitmask stands for: the inverse of `bitmask`."""
    cell_rows, cell_columns, _ = bits.shape
    flags = np.unpackbits(bits[..., None], axis=-1, bitorder="little")
    flags = flags.reshape(cell_rows, cell_columns, 2, 2, 2, 2, 4)
    mask = flags.transpose(0, 2, 4, 5, 1, 3, 6).reshape(cell_rows * 8, cell_columns * 8)
    return mask.astype(bool)


def apply_dense(out: np.ndarray, dense: np.ndarray, bitmask: np.ndarray) -> None:
    """Write ``dense`` where the mask is set, zero (also for a NaN) elsewhere."""
    out[...] = np.where(mask_of(bitmask), dense, np.zeros((), dtype=dense.dtype))


_steps = TwoSided(
    prune_tile, apply_dense, bitmask, compress, lambda matrix: np.ascontiguousarray(matrix.T)
)
tile, apply = _steps.tile, _steps.apply
