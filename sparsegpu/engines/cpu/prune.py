"""Choosing what a 2:4 matrix keeps: compiled loops over groups and tiles.

A loop reads two things: the keys that are compared (float32, or float64 where that is needed to
compare exactly) and the values' bits, which are kept or become zero.
"""

from __future__ import annotations

import numpy as np

from .._prune_both_sides import TwoSided
from ..reference.prune import COLUMN_LIMIT, ROW_LIMITS
from ._jit import frozen, jit
from ._operands import widen
from ._threads import for_each
from .compress import bits, compress, row_slices, value_mask

#: What an element costs in multiply-adds (`for_each`).
_COST = 20


def prune_24(
    out: np.ndarray, dense: np.ndarray, keep: str, importance: np.ndarray | None = None
) -> None:
    """Keep the two most important of each four in a row: see `reference.prune.prune_24`."""
    group = 2 if keep == "1:2" else 4
    target = bits(out)

    def rows(place: slice) -> None:
        keys = np.abs(widen(dense[place])) if importance is None else widen(importance[place])
        target[place] = bits(dense[place])
        prune_rows(target[place], *compared(keys), group)

    for_each(rows, row_slices(len(out), out.size * _COST), out.size * _COST)


def prune_tile(out: np.ndarray, dense: np.ndarray, algorithm: str) -> None:
    """Keep values while row and column have room: see `reference.prune.prune_tile`."""
    target = bits(out)
    limits = frozen(np.array(ROW_LIMITS[algorithm]))

    def rows(place: slice) -> None:
        keys = widen(dense[place])
        if algorithm == "largest_abs_values_greedy":
            keys = np.abs(keys)
        target[place] = bits(dense[place])
        prune_tiles(target[place], *compared(keys), limits, COLUMN_LIMIT)

    for_each(rows, row_slices(len(out), out.size * _COST, 4), out.size * _COST)


def bitmask(out: np.ndarray, pruned: np.ndarray) -> None:
    """Write the nonzero flags, (rows/8, cols/8, 8) bytes: see `reference.prune.bitmask`."""
    mask = value_mask(pruned.dtype)
    values = bits(pruned)

    def rows(place: slice) -> None:
        flags = np.ascontiguousarray(values[place.start * 8 : place.stop * 8])
        write_bitmask(out[place], frozen(flags), mask)

    for_each(rows, row_slices(len(out), pruned.size), pruned.size)


def apply_dense(out: np.ndarray, dense: np.ndarray, bitmask: np.ndarray) -> None:
    """Write ``dense`` where the mask is set, zero (also for a NaN) elsewhere."""
    target = bits(out)

    def rows(place: slice) -> None:
        cells = slice(place.start // 8, place.stop // 8)
        target[place] = bits(dense[place])
        keep_masked(target[place], frozen(np.ascontiguousarray(bitmask[cells])))

    for_each(rows, row_slices(len(out), out.size, 8), out.size)


def transposed(matrix: np.ndarray) -> np.ndarray:
    """Return the C-contiguous transpose of a matrix."""
    result = np.empty(matrix.shape[::-1], matrix.dtype)
    values, target = bits(matrix), bits(result)

    def columns(place: slice) -> None:
        target[place] = values[:, place].T

    for_each(columns, row_slices(len(target), matrix.size, 32), matrix.size)
    return result


_steps = TwoSided(prune_tile, apply_dense, bitmask, compress, transposed)
tile, apply = _steps.tile, _steps.apply


def compared(keys: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Return keys as `order` takes them: their bits, the mask of all but the sign, infinity."""
    integer = np.dtype(f"i{keys.itemsize}")
    infinity = np.array(np.inf, keys.dtype).view(integer)
    return frozen(keys.view(integer)), int(np.iinfo(integer).max), int(infinity)


@jit()
def order(x, mask, infinity):
    """Return an int64 that compares like the float with bits ``x``; NaN is below all."""
    magnitude = np.int64(x) & mask
    signed = magnitude if x >= 0 else -magnitude
    return signed if magnitude <= infinity else -infinity - 1


@jit()
def prune_rows(out, keys, mask, infinity, group):
    """Zero what in each group is beaten by half of it or more; on ties the lower index wins.

    Without branches, which would be mispredicted half of the time.
    """
    zero = out.dtype.type(0)
    for r in range(out.shape[0]):
        x, key = out[r], keys[r]
        for s in range(0, out.shape[1] - group + 1, group):
            a, b = order(key[s], mask, infinity), order(key[s + 1], mask, infinity)
            ab = np.int64(b > a)  # b beats a
            if group == 2:
                x[s] = zero if ab else x[s]
                x[s + 1] = x[s + 1] if ab else zero
                continue
            c, d = order(key[s + 2], mask, infinity), order(key[s + 3], mask, infinity)
            ac, ad, bc = np.int64(c > a), np.int64(d > a), np.int64(c > b)
            bd, cd = np.int64(d > b), np.int64(d > c)
            x[s] = x[s] if ab + ac + ad < 2 else zero
            x[s + 1] = x[s + 1] if 1 - ab + bc + bd < 2 else zero
            x[s + 2] = x[s + 2] if 2 - ac - bc + cd < 2 else zero
            x[s + 3] = x[s + 3] if 3 - ad - bd - cd < 2 else zero


@jit()
def prune_tiles(out, keys, mask, infinity, row_limits, column_limit):
    """Keep in each 4 x 4 tile what row and column have room for, the first keys first."""
    zero = out.dtype.type(0)
    key = np.empty(16, np.int64)
    rank, visit = np.empty(16, np.int64), np.empty(16, np.int64)
    row_room, column_room = np.empty(4, np.int64), np.empty(4, np.int64)
    for top in range(0, out.shape[0] - 3, 4):
        for left in range(0, out.shape[1] - 3, 4):
            for n in range(16):
                key[n] = order(keys[top + n // 4, left + n % 4], mask, infinity)
            rank[:] = 0  # how many beat it: counted without branches, which would be mispredicted
            for i in range(1, 16):
                lost = 0
                for j in range(i):
                    later_wins = np.int64(key[i] > key[j])
                    rank[j] += later_wins
                    lost += 1 - later_wins  # type: ignore[assignment]
                rank[i] = lost
            for n in range(16):
                visit[rank[n]] = n
            row_room[:] = row_limits
            column_room[:] = column_limit
            for n in range(16):
                r, c = visit[n] // 4, visit[n] % 4
                keeps = np.int64(row_room[r] > 0 and column_room[c] > 0)
                row_room[r] -= keeps
                column_room[c] -= keeps
                x = out[top + r, left + c]
                out[top + r, left + c] = x if keeps else zero


@jit()
def write_bitmask(out, values, mask):
    """Write the flags of rows of 8 x 8 cells."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for byte in range(8):  # tile (byte // 4, byte // 2 % 2), its pair of rows byte % 2
                row = i * 8 + byte // 4 * 4 + byte % 2 * 2
                column = j * 8 + byte // 2 % 2 * 4
                flags = 0
                for b in range(8):
                    if (values[row + b // 4, column + b % 4] & mask) != 0:
                        flags |= 1 << b
                out[i, j, byte] = flags


@jit()
def keep_masked(out, mask):
    """Zero what the flags of `write_bitmask` do not keep."""
    for i in range(mask.shape[0]):
        for j in range(mask.shape[1]):
            for byte in range(8):
                row = i * 8 + byte // 4 * 4 + byte % 2 * 2
                column = j * 8 + byte // 2 % 2 * 4
                flags = mask[i, j, byte]
                for b in range(8):
                    if not (flags >> b) & 1:
                        out[row + b // 4, column + b % 4] = 0
