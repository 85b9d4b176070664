"""The 2:4 rules and layouts of the contract, as index arithmetic and loops over small matrices."""

from __future__ import annotations

import numpy as np

ALGORITHMS = ("largest_abs_values_greedy", "largest_values_greedy", "", "causal1122")


def multiples(dtype: np.dtype) -> tuple[int, int]:
    """Return what rows and columns of a 2:4 matrix are multiples of."""
    return {1: (16, 64), 2: (32, 32), 4: (32, 16)}[dtype.itemsize]


def prune_24(dense: np.ndarray, group: int, importance: np.ndarray | None = None) -> np.ndarray:
    """Keep half of each group: the largest, then the lower index, NaN last."""
    out, key = dense.copy(), importance
    if key is None:
        key = np.abs(dense.astype(np.float64))
    whole = dense.shape[-1] // group * group
    shape = (*dense.shape[:-1], whole // group, group)
    # NumPy sorts NaN behind all numbers.
    order = np.argsort(-key[..., :whole].reshape(shape), axis=-1, kind="stable")
    rank = np.argsort(order, axis=-1)
    out[..., :whole][(rank >= group // 2).reshape(*dense.shape[:-1], whole)] = 0
    return out


def prune_tile(dense: np.ndarray, algorithm: str) -> np.ndarray:
    """Visit the values of each 4 x 4 tile in order; keep what row and column have room for."""
    out = dense.copy()
    rows_of = (1, 1, 2, 2) if algorithm == "causal1122" else (2, 2, 2, 2)
    for top in range(0, dense.shape[0] // 4 * 4, 4):
        for left in range(0, dense.shape[1] // 4 * 4, 4):
            values = dense[top : top + 4, left : left + 4].astype(np.float64).ravel()
            key = np.abs(values) if algorithm == ALGORITHMS[0] else values
            rows, columns = [0] * 4, [0] * 4
            for place in np.argsort(-key, kind="stable"):
                i, j = divmod(int(place), 4)
                if rows[i] < rows_of[i] and columns[j] < 2:
                    rows[i] += 1
                    columns[j] += 1
                else:
                    out[top + i, left + j] = 0
    return out


def is_24(dense: np.ndarray) -> bool:
    """Return whether no group has more nonzeros than it keeps."""
    group = 2 if dense.dtype == np.float32 else 4
    flags = (
        (dense != 0).reshape(dense.shape[0], -1, group) if dense.size else np.zeros((1, 1, 1), bool)
    )
    return bool(flags.sum(axis=-1).max(initial=0) <= group // 2)


def compress(dense: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return packed values and metadata in CUTLASS's order, by the contract's table."""
    (m, k), dtype = dense.shape, dense.dtype
    kind, codes_of = (np.dtype(np.int32), 8) if dtype.itemsize == 1 else (np.dtype(np.int16), 4)
    if dtype == np.float32:
        pairs = dense.reshape(m, k // 2, 2)
        first = pairs[..., 0] != 0
        packed = np.where(first, pairs[..., 0], pairs[..., 1])
        code = np.where(first, 0b0100, 0b1110)
    else:
        groups = dense.reshape(m, k // 4, 4)
        f0, f1, _, f3 = np.moveaxis(groups != 0, -1, 0)
        high = np.where(f3, 3, 2)
        i = np.where(f0, 0, np.where(f1, 1, 2))
        j = np.where(f0 & f1, 1, np.where(f0 | f1, high, 3))
        both = np.stack([i, j], axis=-1)
        packed = np.take_along_axis(groups, both, axis=-1).reshape(m, k // 2)
        code = i | j << 2
    columns = code.shape[1] // codes_of
    shifts = 4 * np.arange(codes_of, dtype=np.int64)
    meta = (code.reshape(m, columns, codes_of).astype(np.int64) << shifts).sum(axis=-1)
    meta = meta.astype(f"u{kind.itemsize}").view(kind)
    reordered = np.empty(meta.size, kind)
    reordered[places(m, columns, kind)] = meta.ravel()
    return np.ascontiguousarray(packed), reordered.reshape(meta.shape)


def expand(packed: np.ndarray, meta: np.ndarray) -> np.ndarray:
    """Return the dense matrix of 2:4 values by legal metadata in CUTLASS's order."""
    (m, half), codes_of = packed.shape, 2 * meta.itemsize
    words = meta.ravel()[places(m, meta.shape[1], meta.dtype)].view(f"u{meta.itemsize}")
    codes = words.astype(np.int64)[:, None] >> 4 * np.arange(codes_of, dtype=np.int64) & 15
    code = codes.reshape(m, half // 2)
    groups = np.zeros((m, half // 2, 4), packed.dtype)
    values = packed.reshape(m, half // 2, 2)
    np.put_along_axis(groups, np.stack([code & 3, code >> 2], axis=-1), values, axis=-1)
    return groups.reshape(m, 2 * half)


def places(m: int, columns: int, dtype: np.dtype) -> np.ndarray:
    """Return the flat place of each metadata element, row by row."""
    g, w = (32, 4) if dtype.itemsize == 2 else (16, 2)
    r, c = (x.ravel() for x in np.indices((m, columns)))
    row, column = r // g * g + (r % 8) * w + (r % g) // 8, c
    right = (row % 2 == 0) & (column % 2 == 1)
    left = (row % 2 == 1) & (column % 2 == 0)
    row, column = row + right - left, column - right + left
    return (column // 2) * m * 2 + row * 2 + column % 2


def bitmask(matrix: np.ndarray) -> np.ndarray:
    """Return one bit an element: bytes are 4 x 4 tiles, each as two pairs of rows."""
    m, k = matrix.shape
    # row = 8 R + 4 a + 2 b + c, column = 8 C + 4 d + e: byte 4 a + 2 d + b, bit 4 c + e
    cells = (matrix != 0).reshape(m // 8, 2, 2, 2, k // 8, 2, 4)
    bits = cells.transpose(0, 4, 1, 5, 2, 3, 6).reshape(m // 8, k // 8, 8, 8)
    return np.packbits(bits, axis=-1, bitorder="little")[..., 0]


def unmasked(bits: np.ndarray) -> np.ndarray:
    """Return the flags of a bitmask as a matrix."""
    rows, columns, _ = bits.shape
    cells = np.unpackbits(bits[..., None], axis=-1, bitorder="little")
    cells = cells.reshape(rows, columns, 2, 2, 2, 2, 4).transpose(0, 2, 4, 5, 1, 3, 6)
    return cells.reshape(8 * rows, 8 * columns) != 0
