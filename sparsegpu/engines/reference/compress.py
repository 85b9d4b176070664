"""2:4 compression into the format that `_format_24` describes, and back."""

from __future__ import annotations

import numpy as np

from ..._arrays import float8_e4m3fn
from ..._format_24 import FIRST_OF_PAIR, FORMATS, SECOND_OF_PAIR, reorder_offsets


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


def group_codes(meta: np.ndarray) -> np.ndarray:
    """Return the code of every group (m, groups), from reordered metadata."""
    rows = np.empty_like(meta, order="C")
    restore_meta(rows, meta)
    places = np.arange(0, 8 * meta.itemsize, 4)
    return (rows[..., None].astype(np.int64) >> places & 15).reshape(len(meta), -1)


def first_illegal(meta: np.ndarray, group: int) -> int:
    """Return the row-major number of the first group whose code is illegal, or -1.

    Groups of four: the two positions do not rise. Pairs (``group`` 2): neither code of one.
    """
    codes = group_codes(meta)
    if group == 4:
        legal = (codes & 3) < (codes >> 2)
    else:
        legal = (codes == FIRST_OF_PAIR) | (codes == SECOND_OF_PAIR)
    illegal = np.flatnonzero(~legal)
    return int(illegal[0]) if illegal.size else -1


def kept_columns(meta: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the dense column (m, k/2) of every packed value, from reordered metadata."""
    form, codes = FORMATS[dtype], group_codes(meta)
    start = form.group * np.arange(codes.shape[1])
    if form.group == 2:
        return start + (codes & 3) // 2
    return np.stack([start + (codes & 3), start + (codes >> 2)], axis=-1).reshape(len(meta), -1)


def expand(dense: np.ndarray, packed: np.ndarray, meta: np.ndarray) -> None:
    """Write the dense matrix that ``compress`` came from: zeros where nothing was kept."""
    dense[...] = np.zeros((), dtype=dense.dtype)
    np.put_along_axis(dense, kept_columns(meta, packed.dtype), packed, axis=-1)
