"""2:4 compression, a group at a time in compiled loops over the bits of the values."""

from __future__ import annotations

import numpy as np

from ..._format_24 import FORMATS
from ..._math import ceil_div, round_up
from ..reference.compress import reorder_meta as reorder_meta  # index arithmetic: NumPy is fastest
from ..reference.compress import restore_meta as restore_meta
from ._jit import frozen, jit
from ._threads import for_each, pieces

#: What an element costs in multiply-adds (`for_each`).
_COST = 10


def compress(packed: np.ndarray, meta: np.ndarray, dense: np.ndarray, strict: bool) -> int:
    """Write the kept values (m, k/2) and the reordered metadata of ``dense`` (m, k).

    Returns
    -------
    int
        -1, or with ``strict`` the row-major number of the first group with more nonzeros than
        it keeps (nothing is written then).
    """
    form = FORMATS[dense.dtype]
    (m, k), values = dense.shape, frozen(np.ascontiguousarray(bits(dense)))
    mask = value_mask(dense.dtype)
    places = row_slices(m, dense.size * _COST)
    if strict:
        first = np.full(len(places), -1, np.int64)

        def look(number: int) -> None:
            rows = places[number]
            first[number] = first_too_full(values[rows], mask, form.group)
            if first[number] >= 0:
                first[number] += rows.start * (k // form.group)

        for_each(look, range(len(places)), dense.size * _COST)
        if (first >= 0).any():
            return int(first[first >= 0][0])
    words = np.empty(meta.size, f"u{meta.itemsize}")
    out = bits(packed)

    def write(rows: slice) -> None:
        compress_rows(out[rows], words, values[rows], mask, form.group, rows.start, m)

    for_each(write, places, dense.size * _COST)
    meta[...] = words.view(meta.dtype).reshape(meta.shape)
    return -1


def expand(dense: np.ndarray, packed: np.ndarray, meta: np.ndarray) -> None:
    """Write the dense matrix that ``compress`` came from: zeros where nothing was kept."""
    form = FORMATS[packed.dtype]
    out, values = bits(dense), frozen(np.ascontiguousarray(bits(packed)))
    words = frozen(np.ascontiguousarray(meta).view(f"u{meta.itemsize}").reshape(-1))

    def write(rows: slice) -> None:
        expand_rows(out[rows], values[rows], words, form.group, rows.start, len(out))

    for_each(write, row_slices(len(out), out.size * _COST), out.size * _COST)


def first_illegal(meta: np.ndarray, group: int) -> int:
    """Return the row-major number of the first group whose code is illegal, or -1."""
    m, columns = meta.shape
    words = frozen(np.ascontiguousarray(bits(meta)).reshape(-1))
    cost = words.size * 2 * meta.itemsize * _COST
    places = row_slices(m, cost)
    first = np.full(len(places), -1, np.int64)

    def look(number: int) -> None:
        rows = places[number]
        first[number] = first_illegal_code(words, group, rows.start, rows.stop, m, columns)

    for_each(look, range(len(places)), cost)
    return int(first[first >= 0][0]) if (first >= 0).any() else -1


def bits(array: np.ndarray) -> np.ndarray:
    """Return an array's elements as unsigned integers: one loop for all dtypes of a size."""
    return array.view(f"u{array.itemsize}")


def value_mask(dtype: np.dtype) -> np.unsignedinteger:
    """Return the bits that make a value nonzero: not the sign of a float."""
    unsigned = np.dtype(f"u{dtype.itemsize}").type
    every = np.iinfo(unsigned).max
    return unsigned(every if dtype == np.int8 else every >> 1)


def row_slices(count: int, cost: float, multiple: int = 1) -> list[slice]:
    """Cut ``count`` rows into slices for `for_each`, each a multiple of rows but the last."""
    step = max(round_up(ceil_div(count, pieces(cost)), multiple), multiple)
    return [slice(r, min(r + step, count)) for r in range(0, count, step)]


@jit()
def first_too_full(dense, mask, group):
    """Return the number of the first group with more nonzeros than it keeps, or -1."""
    m, k = dense.shape
    for r in range(m):
        for g in range(k // group):
            count = 0
            for i in range(group):
                count += (dense[r, g * group + i] & mask) != 0
            if count > group // 2:
                return r * (k // group) + g
    return -1


@jit()
def place(r, c, m, wide):
    """Return the offset of metadata element (r, c) in CUTLASS's order; ``wide``: it has 32 bits."""
    group, width = (16, 2) if wide else (32, 4)
    row = r // group * group + (r % 8) * width + (r % group) // 8
    step = 0  # the off-diagonal elements of each 2 x 2 cell are swapped
    if row % 2 == 0 and c % 2 == 1:
        step = 1
    elif row % 2 == 1 and c % 2 == 0:
        step = -1
    row += step
    c -= step
    return c // 2 * (m * 2) + row * 2 + c % 2


@jit()
def first_illegal_code(words, group, first, last, m, columns):
    """Return the number of the first group in rows first..last with an illegal code, or -1."""
    codes = 2 * words.itemsize
    for r in range(first, last):
        for c in range(columns):
            word = np.uint32(words[place(r, c, m, words.itemsize == 4)])
            for q in range(codes):
                code = np.int64(word >> np.uint32(4 * q)) & 15
                if group == 2:
                    legal = code == 0b0100 or code == 0b1110
                else:
                    legal = (code & 3) < (code >> 2)
                if not legal:
                    return (r * columns + c) * codes + q
    return -1


@jit()
def compress_rows(packed, meta, dense, mask, group, first, m):
    """Compress some rows, of which the first is row ``first`` of ``m``."""
    codes = 2 * meta.itemsize
    kept = group // 2
    for r in range(dense.shape[0]):
        for c in range(dense.shape[1] // (group * codes)):
            word = np.uint32(0)
            for q in range(codes):
                g = c * codes + q
                x = dense[r, g * group : (g + 1) * group]
                f0 = (x[0] & mask) != 0
                if group == 2:
                    packed[r, g] = x[0] if f0 else x[1]
                    code = 0b0100 if f0 else 0b1110
                else:
                    f1 = (x[1] & mask) != 0
                    i = 0 if f0 else (1 if f1 else 2)
                    if f0 and f1:
                        j = 1
                    elif (not f0 and not f1) or (x[3] & mask) != 0:
                        j = 3
                    else:
                        j = 2
                    packed[r, g * kept] = x[i]
                    packed[r, g * kept + 1] = x[j]
                    code = i | j << 2
                word |= np.uint32(code) << np.uint32(4 * q)
            meta[place(first + r, c, m, meta.itemsize == 4)] = word


@jit()
def expand_rows(dense, packed, meta, group, first, m):
    """Undo `compress_rows`."""
    codes = 2 * meta.itemsize
    dense[:] = 0
    for r in range(dense.shape[0]):
        for c in range(dense.shape[1] // (group * codes)):
            word = np.uint32(meta[place(first + r, c, m, meta.itemsize == 4)])
            for q in range(codes):
                g = c * codes + q
                code = np.int64(word >> np.uint32(4 * q)) & 15
                if group == 2:
                    dense[r, g * 2 + (code & 3) // 2] = packed[r, g]
                else:
                    dense[r, g * 4 + (code & 3)] = packed[r, 2 * g]
                    dense[r, g * 4 + (code >> 2)] = packed[r, 2 * g + 1]
