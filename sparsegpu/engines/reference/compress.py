"""2:4 compression in CUTLASS's layout: kept values, 4-bit codes, reordered metadata.

The layout is that of CUTLASS's `reorder_meta` (``cutlass/util/host_reorder.h``) and
``device_memory`` operand E of its sparse GEMMs; the codes are those of ``mma.sp`` (PTX ISA,
section "Sparse matrix storage").
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..._arrays import HALF_DTYPES, float8_e4m3fn

#: A float32 pair keeps its first or its second element: the codes of the pair's 16-bit halves.
FIRST_OF_PAIR, SECOND_OF_PAIR = 0b0100, 0b1110


class Format(NamedTuple):
    """How values of one dtype are grouped and described.

    Attributes
    ----------
    group : elements that share one code (two of four are kept; float32: one of two)
    codes : codes in a metadata element
    meta_dtype : dtype of the metadata
    rows, columns : what the shape of a dense matrix must be a multiple of
    """

    group: int
    codes: int
    meta_dtype: np.dtype
    rows: int
    columns: int

    @property
    def kept(self) -> int:
        """Elements that a group keeps."""
        return self.group // 2

    def meta_columns(self, k: int) -> int:
        """Metadata elements in a row of ``k`` dense elements."""
        return k // (self.group * self.codes)


_HALF = Format(4, 4, np.dtype(np.int16), 32, 32)
_BYTE = Format(4, 8, np.dtype(np.int32), 16, 64)
_SINGLE = Format(2, 4, np.dtype(np.int16), 32, 16)

#: uint8 is how float8_e4m3fn travels where the array library has no such dtype.
FORMATS: dict[np.dtype, Format] = {
    **dict.fromkeys(HALF_DTYPES, _HALF),
    np.dtype(np.float32): _SINGLE,
    np.dtype(np.int8): _BYTE,
    float8_e4m3fn: _BYTE,
    np.dtype(np.uint8): _BYTE,
}


def reorder_offsets(m: int, columns: int, meta_dtype: np.dtype, xp: ModuleType = np) -> Any:
    """Return the flat place of each metadata element, int64, shape (m * columns,).

    Written for NumPy and CuPy alike; ``m`` is a multiple of 32 (32-bit metadata: 16) and
    ``columns`` is even.
    """
    group, width = (32, 4) if meta_dtype.itemsize == 2 else (16, 2)
    r = xp.arange(m, dtype=np.int64)[:, None]
    c = xp.arange(columns, dtype=np.int64)[None, :]
    row = r // group * group + (r % 8) * width + (r % group) // 8
    # Within each 2 x 2 cell the top-right and the bottom-left change places.
    top_right = (row % 2 == 0) & (c % 2 == 1)
    bottom_left = (row % 2 == 1) & (c % 2 == 0)
    step = top_right.astype(np.int64) - bottom_left.astype(np.int64)
    row, column = row + step, c - step
    return (column // 2 * (m * 2) + row * 2 + column % 2).ravel()


def reorder_meta(out: np.ndarray, meta: np.ndarray) -> None:
    """Write row-major metadata in CUTLASS's order."""
    flat = np.empty(meta.size, dtype=meta.dtype)
    m, columns = meta.shape
    flat[reorder_offsets(m, columns, meta.dtype)] = meta.ravel()
    out[...] = flat.reshape(meta.shape)


def restore_meta(out: np.ndarray, meta: np.ndarray) -> None:
    """Write CUTLASS-ordered metadata row-major: the inverse of `reorder_meta`."""
    m, columns = meta.shape
    out[...] = meta.ravel()[reorder_offsets(m, columns, meta.dtype)].reshape(meta.shape)


def nonzero(values: np.ndarray) -> np.ndarray:
    """Flag what counts as a value: -0.0 does not, NaN and infinities do."""
    if values.dtype == np.uint8 or values.dtype == float8_e4m3fn:
        return (values.view(np.uint8) & 0x7F) != 0
    return values != 0


def kept_positions(flags: np.ndarray) -> np.ndarray:
    """Return the positions (*, 2) that groups of four keep, from their nonzero flags (*, 4).

    The first two set: (0, 1); neither: (2, 3); else the set one of the two, and 3 if the last
    is set, else 2.
    """
    f0, f1, _, f3 = np.moveaxis(flags, -1, 0)
    first = np.where(f0, 0, np.where(f1, 1, 2))
    second = np.where(f0 & f1, 1, np.where(~f0 & ~f1 | f3, 3, 2))
    return np.stack([first, second], axis=-1)


def compress(packed: np.ndarray, meta: np.ndarray, dense: np.ndarray, strict: bool) -> int:
    """Write the kept values (m, k/2) and the reordered metadata of ``dense`` (m, k).

    Returns
    -------
    int
        -1, or with ``strict`` the row-major number of the first group with more nonzeros than
        it keeps (nothing is written then).
    """
    form = FORMATS[dense.dtype]
    m, k = dense.shape
    groups = dense.reshape(m, k // form.group, form.group)
    flags = nonzero(groups)
    if strict:
        too_many = np.flatnonzero(flags.sum(axis=-1) > form.kept)
        if too_many.size:
            return int(too_many[0])
    if form.group == 4:
        kept = kept_positions(flags)
        codes = kept[..., 0] | kept[..., 1] << 2
    else:
        kept = np.where(flags[..., :1], 0, 1)
        codes = np.where(flags[..., 0], FIRST_OF_PAIR, SECOND_OF_PAIR)
    packed[...] = np.take_along_axis(groups, kept, axis=-1).reshape(m, k // 2)
    codes = codes.reshape(m, form.meta_columns(k), form.codes).astype(np.uint32)
    places = 4 * np.arange(form.codes, dtype=np.uint32)
    words = np.bitwise_or.reduce(codes << places, axis=-1)
    unsigned = np.uint16 if form.meta_dtype.itemsize == 2 else np.uint32
    reorder_meta(meta, words.astype(unsigned).view(form.meta_dtype))
    return -1


def kept_columns(meta: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the dense column (m, k/2) of every packed value, from reordered metadata."""
    form = FORMATS[dtype]
    rows = np.empty_like(meta, order="C")
    restore_meta(rows, meta)
    m, columns = meta.shape
    places = 4 * np.arange(form.codes)
    codes = (rows[..., None].astype(np.int64) >> places & 15).reshape(m, columns * form.codes)
    start = form.group * np.arange(codes.shape[1])
    if form.group == 2:
        return start + (codes & 3) // 2
    return np.stack([start + (codes & 3), start + (codes >> 2)], axis=-1).reshape(m, -1)


def expand(dense: np.ndarray, packed: np.ndarray, meta: np.ndarray) -> None:
    """Write the dense matrix that ``compress`` came from: zeros where nothing was kept."""
    dense[...] = np.zeros((), dtype=dense.dtype)
    np.put_along_axis(dense, kept_columns(meta, packed.dtype), packed, axis=-1)
